"""Writes a file as a C array: embed.py INPUT OUTPUT NAME."""
import sys

source, target, name = sys.argv[1:]
data = open(source, 'rb').read()
with open(target, 'w') as out:
    out.write('#include <stddef.h>\n\n')
    out.write(f'extern const unsigned char {name}[];\nextern const size_t {name}_len;\n')
    out.write(f'const size_t {name}_len = {len(data)};\nconst unsigned char {name}[] = {{\n')
    for i in range(0, len(data), 16):
        out.write('    ' + ', '.join(str(b) for b in data[i:i + 16]) + ',\n')
    out.write('};\n')
