#!/bin/sh
# Builds the peer, llama.cpp, for side-by-side benchmarks: llama-server, llama-bench,
# llama-batched-bench, llama-perplexity and llama-quantize. Its source comes inside the sdist of the
# Python package llama-cpp-python. About 15 minutes on two cores.
#   build_peer.sh DIR      -> DIR/bin
set -eu
dir=${1:?usage: build_peer.sh DIR}
mkdir -p "$dir/src"
cd "$dir"
[ -d src/vendor ] || {
    python3 -m pip download llama-cpp-python==0.3.36 --no-deps --no-binary :all: -d .
    tar xzf llama_cpp_python-0.3.36.tar.gz -C src --strip-components=1
    # gcc 12's _tile_loadconfig names only 8 of the 64 bytes that it reads: on an AMX machine the
    # peer then dies of SIGILL or SIGSEGV unless the stores before it are kept in place.
    sed -i 's/^ *_tile_loadconfig(&tc);/    __asm__ volatile("" ::: "memory"); _tile_loadconfig(\&tc);/' \
        src/vendor/llama.cpp/ggml/src/ggml-cpu/amx/mmq.cpp
}
cmake -S src/vendor/llama.cpp -B . -G Ninja -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \
    -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_UI=OFF \
    -DLLAMA_BUILD_APP=OFF >cmake.log
ninja bin/llama-server bin/llama-bench bin/llama-batched-bench bin/llama-perplexity bin/llama-quantize
