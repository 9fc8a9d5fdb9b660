"""GGUF files taken apart, to make models in several files of one."""

import pathlib
import struct

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY, U16, I32 = 8, 9, 2, 5


def number(data, at, n):
    return int.from_bytes(data[at : at + n], "little"), at + n


def text(data, at):
    n, at = number(data, at, 8)
    return data[at : at + n], at + n


def skip_value(data, at, kind):
    if kind == STRING:
        return text(data, at)[1]
    if kind != ARRAY:
        return at + SIZES[kind]
    item, at = number(data, at, 4)
    n, at = number(data, at, 8)
    for _ in range(n):
        at = skip_value(data, at, item)
    return at


def parse(data):
    """Of a file with F32 tensors: number and bytes of the metadata; [name, dims, type, content]."""
    n_tensors, at = number(data, 8, 8)
    n_entries, at = number(data, at, 8)
    begin = at
    for _ in range(n_entries):
        at = text(data, at)[1]
        kind, at = number(data, at, 4)
        at = skip_value(data, at, kind)
    metadata, tensors = data[begin:at], []
    for _ in range(n_tensors):
        name, at = text(data, at)
        n_dims, at = number(data, at, 4)
        dims = struct.unpack_from(f"<{n_dims}Q", data, at)
        kind, offset = struct.unpack_from("<IQ", data, at + 8 * n_dims)
        at += 8 * n_dims + 12
        assert kind == 0
        tensors.append([name, dims, kind, offset])
    data_at = at + -at % 32
    for t in tensors:
        size = 4
        for d in t[1]:
            size *= d
        t[3] = data[data_at + t[3] : data_at + t[3] + size]
    return n_entries, metadata, tensors


def entry(key, kind, value):
    packed = struct.pack({U16: "<H", I32: "<i"}[kind], value)
    return struct.pack("<Q", len(key)) + key + struct.pack("<I", kind) + packed


def build(n_entries, metadata, tensors):
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), n_entries) + metadata
    body = b""
    for name, dims, kind, content in tensors:
        head += struct.pack("<Q", len(name)) + name + struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
        head += struct.pack("<IQ", kind, len(body))
        body += content + b"\0" * (-len(content) % 32)
    return head + b"\0" * (-len(head) % 32) + body


def split(data, n):
    """The same model in n files, as llama.cpp's gguf-split cuts it."""
    n_entries, metadata, tensors = parse(data)
    files = []
    for i in range(n):
        own = entry(b"split.no", U16, i) + entry(b"split.count", U16, n)
        own += entry(b"split.tensors.count", I32, len(tensors))
        piece = tensors[i * len(tensors) // n : (i + 1) * len(tensors) // n]
        files.append(build(3 + (n_entries if i == 0 else 0), (metadata if i == 0 else b"") + own, piece))
    return files


def split_names(stem, n):
    return [f"{stem}-{i + 1:05}-of-{n:05}.gguf" for i in range(n)]


def save_split(folder, path, n, stem="m"):
    """Writes the model at path into a folder, in n files; their paths."""
    paths = [pathlib.Path(folder) / name for name in split_names(stem, n)]
    for path, data in zip(paths, split(pathlib.Path(path).read_bytes(), n)):
        path.write_bytes(data)
    return paths
