#!/usr/bin/env bash
# onednn3.sh - builds and tests the oneDNN family against oneDNN 3.x, which the
# distribution we develop on does not have yet. Takes library and headers
# from PyPI (onednn-cpu-gomp, 40 MB) and, to compile only, the
# newest headers (onednn-devel) into a folder of its own that goes at the end.
# Exit status 77: the packages could not be had, nothing was tested.
set -euo pipefail
root="$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)"
place="$(mktemp -d)"
trap 'rm -rf "$place"' EXIT

for env in library newest; do python3 -m venv "$place/$env"; done
if ! "$place/library/bin/pip" install -q --no-deps onednn-cpu-gomp onednn-devel-cpu-gomp ||
   ! "$place/newest/bin/pip" install -q --no-deps onednn-devel; then
    echo "onednn3: the packages could not be had" >&2
    exit 77
fi

version_of() { # folder -> major.minor
    sed -n 's/^#define DNNL_VERSION_M[AI][JN]OR *\([0-9]*\)$/\1/p' \
        "$1/include/oneapi/dnnl/dnnl_version.h" | paste -sd.
}
for env in library newest; do
    version="$(version_of "$place/$env")"
    case "$version" in
    3.*) echo "onednn3: $env is $version" ;;
    *) echo "onednn3: expected 3.x, got '$version'" >&2; exit 1 ;;
    esac
done

"${CC:-cc}" -std=c17 -D_GNU_SOURCE -DMANTA_ONEDNN -Wall -Wextra -Wconversion -Wshadow -Werror -fsyntax-only \
    -I"$root/src" -I"$root/include" -I"$place/newest/include" "$root/src/tensor/onednn.c"

cmake -S "$root" -B "$place/build" -G Ninja -DMANTA_WERROR=ON -DONEDNN_INCLUDE="$place/library/include" >"$place/log"
ninja -C "$place/build" test_tensor_onednn >>"$place/log" || { cat "$place/log" >&2; exit 1; }
export LD_LIBRARY_PATH="$place/library/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
LD_DEBUG=files "$place/build/tests/test_tensor_onednn" 2>&1 | grep "$place/library/lib/libdnnl.so.3" >"$place/log" ||
    { echo "onednn3: the test does not use the library it should" >&2; exit 1; }
"$place/build/tests/test_tensor_onednn"
