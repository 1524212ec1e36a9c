#!/usr/bin/env bash
# make.sh [PROGRAM [FOLDER]] - writes the manual pages from the program's own
# tables, so that --help and they cannot differ. A test of tests/cli fails when
# the pages here are not what the program says.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
manta=${1:-$here/../../build/release/manta}
folder=${2:-$here}

for name in manta train evaluate predict model convert inspect bench data runs logs start stop status ps timeline stack key where launch agent; do
    page=manta-$name.1
    [ "$name" = manta ] && page=manta.1
    "$manta" help --man "$name" >"$folder/$page"
done
