#!/bin/sh
# Everything that is tried on a machine with a GPU, when this one has none.
#
#   tools/gpu.sh gather FOLDER [BUILD]   puts programs, libraries, data and peers into FOLDER (BUILD: build/gpu)
#   FOLDER/gpu.sh there WHAT...          on the other machine: correct, accurate, speed, peers, profile MODEL BATCH PRECISION
#
# BUILD is made by: cmake -S . -B build/gpu -DCMAKE_BUILD_TYPE=Release -DMANTA_GPU=ON
#                   cmake --build build/gpu --target manta_cli test_gpu_mma test_gpu_tiles test_train_device
set -eu
here=$(cd "$(dirname "$0")" && pwd)

gather() {
    to=$1 build=${2:-build/gpu} data=${MANTA_GPU_DATA:-fashion-mnist}
    mkdir -p "$to/lib" "$to/data/$data" "$to/peers"
    cp "$here/gpu.sh" "$here/gpu_profile.py" "$to/"
    cp "$build/manta" "$to/"
    cp -L "$build/libmanta.so.0.2" "$to/lib/"
    for t in test_gpu_mma test_gpu_tiles test_gpu_kernels test_train_device test_train_device_layers; do
        if [ -x "$build/tests/$t" ]; then cp "$build/tests/$t" "$to/"; fi
    done
    ldd "$build/manta" "$build/tests/test_gpu_mma" | awk '$3 ~ /^\// {print $3}' | sort -u |
        grep -v -E '/(libc|libm|libpthread|libdl|librt|ld-linux[^/]*|libmanta|libstdc\+\+|libgcc_s)\.so' | xargs -I{} cp -L {} "$to/lib/"
    strip -g "$to/manta" "$to"/test_* "$to"/lib/libmanta.so.0.2
    shared=${MANTA_SHARED:-../../shared}
    cp "$shared"/peers/torch_gpu.py "$shared"/peers/jax_gpu.py "$shared"/peers/idx.py "$to/peers/"
    cp "$shared/data/$data"/* "$to/data/$data/"
    chmod -R u+w "$to"
    du -sh "$to"
}

correct() {
    for t in test_gpu_mma test_gpu_tiles; do
        if [ -x "$here/$t" ]; then "$here/$t" 2>&1 | grep -v "^same " | tail -40; fi
    done
    for t in test_train_device test_train_device_layers; do
        if [ -x "$here/$t" ]; then MANTA_TEST_DEVICE=gpu timeout 300 "$here/$t" 2>&1 | tail -30; fi
    done
    for p in float32 mixed_bfloat16; do # the same twice
        for k in 1 2; do
            "$here/manta" train resnet18 --data "$data" --batch 128 --optimizer adam --device gpu \
                --precision $p --epochs 1 --steps-per-epoch 30 --save /tmp/$p-$k.npz | tail -2
        done
        if cmp /tmp/$p-1.npz /tmp/$p-2.npz; then echo "SAME TWICE $p"; else echo "DIFFERS $p"; fi
    done
}

speed() {
    for m in "resnet18 128" "resnet18 1024" "mnist-cnn 64" "mnist-cnn 1024"; do
        model=${m% *} batch=${m#* }
        for p in exact float32 mixed_bfloat16; do
            steps=200
            if [ $p = exact ]; then steps=30; fi
            "$here/manta" bench train --device gpu --model "$model" --batch "$batch" --steps $steps --precision $p --json |
                python3 -c "
import json, sys
r = json.loads(sys.stdin.read())
print(f'$m $p: {r[\"device_ms\"]:.4f} ms on the device ({r[\"device_kernels\"]} kernels), {r[\"ms_per_step\"]:.4f} ms with the host', flush=True)"
        done
    done
}

# The best of each peer, each case in a process of its own.
peers() {
    unset LD_LIBRARY_PATH
    mkdir -p /tmp/gpu/data
    ln -sfn "$here/data/$data" /tmp/gpu/data/fashion-mnist
    mkdir -p /tmp/gpu/peers
    cp "$here"/peers/* /tmp/gpu/peers
    cd /tmp/gpu/peers
    for m in "resnet18 128" "resnet18 1024" "mnistcnn 64" "mnistcnn 1024"; do
        for mode in fp32-cl-compile-graph bf16-cl-compile-graph; do
            python3 torch_gpu.py "${m% *}" "${m#* }" $mode 2>/dev/null || echo "torch $m $mode failed"
        done
    done
    python3 jax_gpu.py 2>/dev/null || echo "JAX failed"
}

# Mean accuracy of five seeds after five epochs.
accurate() {
    for model in mnist-cnn resnet18; do
        for p in float32 mixed_bfloat16; do
            for seed in 1 2 3 4 5; do
                "$here/manta" train $model --data "$data" --validation "$data:test" --batch 128 --optimizer adam \
                    --device gpu --precision $p --epochs 5 --seed $seed 2>&1 | tail -1 | sed "s/^/$model $p $seed: /"
            done
        done
    done
}

profile() {
    ncu --clock-control none --metrics gpu__time_duration.sum --csv --launch-count "${4:-500}" \
        "$here/manta" bench train --device gpu --model "$1" --batch "$2" --steps 1 --precision "$3" > /tmp/ncu.csv 2>&1 || tail -3 /tmp/ncu.csv
    python3 "$here/gpu_profile.py" /tmp/ncu.csv
}

case ${1:-} in
gather) shift && gather "$@" ;;
there)
    shift
    export LD_LIBRARY_PATH="$here/lib" MANTA_DATA="$here/data"
    for folder in "$here"/data/*; do data=$(basename "$folder"); done
    while [ $# -gt 0 ]; do
        what=$1
        shift
        echo "== $what"
        case $what in
        profile)
            profile "$1" "$2" "$3"
            shift 3
            ;;
        correct | accurate | speed | peers) $what ;;
        *) echo "gpu.sh there '$what', expected correct, accurate, speed, peers or profile" >&2 && exit 2 ;;
        esac
    done
    ;;
*) sed -n '2,9p' "$0" >&2 && exit 2 ;;
esac
