#!/bin/sh
# Checks what the compiler cannot: each module includes only headers of the modules below it
# (ARCHITECTURE.md), and no two source files share a name.
set -eu
cd "$(dirname "$0")/.."

# A module, and the modules whose headers it may include beside its own. icp_error and, for text,
# icp_chat are the public headers that the layers below the engine share.
may_include() {
    case $1 in
    base) echo icp_error ;;
    json) echo base icp_error ;;
    kern) ;;
    gguf | cache) echo base icp_error ;;
    grammar) echo base json icp_error ;;
    text) echo base json icp_error icp_chat ;;
    model) echo base gguf kern cache icp_error ;;
    engine) echo base kern gguf text cache grammar model icp_error include ;;
    api) echo base json kern gguf text cache grammar model engine icp_error include ;;
    serve) echo base json icp_error include ;;
    hub) echo base json icp_error ;;
    sim) echo base json cache engine icp_error ;;
    cli) echo base json serve sim hub icp_error include ;;
    *) echo "layers: the module $1 has no line in tools/layers.sh" >&2 && return 1 ;;
    esac
}

owner() { # HEADER: the module that it belongs to
    case $1 in
    icp_error.h) echo icp_error ;;
    icp_chat.h) echo icp_chat ;;
    *) find src include -name "$1" | sed 's|^src/||; s|/.*||; q' ;;
    esac
}

bad=0
for module in src/*/; do
    module=$(basename "$module")
    allowed=" $module $(may_include "$module") "
    for line in $(grep -o '^ *# *include *"[^"]*"' -r "src/$module" --include='*.[ch]' |
        tr -d ' "' | sed 's/#include//'); do
        header=$(basename "${line#*:}")
        of=$(owner "$header")
        case $allowed in
        *" ${of:-nobody} "*) ;;
        *)
            echo "${line%%:*}: $module must not include $header (of ${of:-no module})" >&2
            bad=1
            ;;
        esac
    done
done

for name in $(find src include -name '*.[ch]' -exec basename {} \; | sort | uniq -d); do
    echo "$name: the name of more than one file: $(find src include -name "$name" -exec echo {} +)" >&2
    bad=1
done
exit $bad
