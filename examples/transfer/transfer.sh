#!/usr/bin/env bash
# transfer.sh -- a trained network learns the classes of a folder of images: divide, swap the head, train, classify, count.
#
#   examples/transfer/transfer.sh SOURCE MODEL.onnx [OUT]
#
# SOURCE: a folder of class folders, a list FILE.csv, or s3://bucket/prefix.  OUT: a new folder (default ./transfer-out) for the
# lists of both parts, the model, the predictions and the confusion matrix.  EPOCHS, BATCH and RATE are taken from the environment.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
source=$1 model=$2 out=${3:-transfer-out}
mkdir -p "$out"

# What the network takes, and images an eighth larger, from which training cuts at random.  Prediction takes the middle: the model
# remembers it.
size=$(gradpool model show "$model" --json | sed -n 's/.*"input": "[0-9]*x\([0-9]*\)x.*/\1/p')
larger=$((size + size / 8))

# Nine of ten images of each class to learn from, the others to be asked about.
gradpool data split "$source" 0.9 -o "$out/train.csv,$out/test.csv" --seed 1

# Its last layer is replaced by one for the new classes, which learns ten times as fast (the biases twenty times).
gradpool train --pretrained "$model" --classes auto --head-learn-rate-factor 10,20 \
    --data "$out/train.csv" --validation-data "$out/test.csv" \
    --image-size "$larger,$larger" --augment "crop=random crop-size=$size,$size x-reflection=0.5" \
    --epochs "${EPOCHS:-10}" --mini-batch-size "${BATCH:-100}" --lr "${RATE:-0.003}" --seed 1 \
    --plots none --verbose-frequency "${VERBOSE:-50}" --out "$out/model.onnx"

# Classify: file, class and the three best scores of each; and how often which class was taken for which.
gradpool predict --model "$out/model.onnx" --data "$out/test.csv" \
    --top-k 3 --out "$out/predictions.csv"
gradpool evaluate --model "$out/model.onnx" --data "$out/test.csv" \
    --per-class --confusion "$out/confusion.png,$out/confusion.csv"
