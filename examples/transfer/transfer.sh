#!/usr/bin/env bash
# Transfer learning on a folder of images: split the data, replace the head, train, classify, and compute the confusion matrix.
#
#   ./transfer.sh SOURCE MODEL.onnx [OUT]
#
# SOURCE: a folder of class folders, a list FILE.csv, or s3://bucket/prefix. OUT: a new folder for the lists of both parts, the model,
# the predictions and the confusion matrix (default ./transfer-out). Environment variables: EPOCHS, BATCH, RATE.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
source=$1 model=$2 out=${3:-transfer-out}
mkdir -p "$out"

# Resize images to an eighth more than the network's input. Training takes random crops of them. Prediction takes the center, as
# stored in the model.
size=$(gradpool model show "$model" --json | sed -n 's/.*"input": "[0-9]*x\([0-9]*\)x.*/\1/p')
larger=$((size + size / 8))

# Train on nine of ten images of each class, and test with the others.
gradpool data split "$source" 0.9 -o "$out/train.csv,$out/test.csv" --seed 1

# Replace the last layer by one for the new classes, with ten times the learning rate (twenty times for biases).
gradpool train --pretrained "$model" --classes auto --head-learn-rate-factor 10,20 \
    --data "$out/train.csv" --validation-data "$out/test.csv" \
    --image-size "$larger,$larger" --augment "crop=random crop-size=$size,$size x-reflection=0.5" \
    --epochs "${EPOCHS:-10}" --mini-batch-size "${BATCH:-100}" --lr "${RATE:-0.003}" --seed 1 \
    --plots none --verbose-frequency "${VERBOSE:-50}" --out "$out/model.onnx"

# Write the file, class and three best scores of each image. Then compute the confusion matrix.
gradpool predict --model "$out/model.onnx" --data "$out/test.csv" \
    --top-k 3 --out "$out/predictions.csv"
gradpool evaluate --model "$out/model.onnx" --data "$out/test.csv" \
    --per-class --confusion "$out/confusion.png,$out/confusion.csv"
