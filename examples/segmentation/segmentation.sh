#!/usr/bin/env bash
# segmentation.sh -- DeepLab v3+ learns the classes of pixels from random patches; images are predicted in windows and counted.
#
#   examples/segmentation/segmentation.sh SOURCE [OUT]
#
# SOURCE: images with label images beside them (docs/data.md, "A class for each pixel").  OUT: a new folder (default
# ./segmentation-out) for the model, checkpoints, label images, overlays and the confusion matrix.  From the environment:
# BACKBONE, PATCH, PATCHES, EPOCHS, BATCH, RATE.
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
source=$1 out=${2:-segmentation-out}
patch=${PATCH:-512}
mkdir -p "$out"

# How many pixels each class has, and what it will count in the loss.
gradpool data show "$source"

# Patches are cut at random out of every image, turned and moved; an epoch is images x patches, and none is stored.
gradpool train --network "deeplabv3plus:backbone=${BACKBONE:-inceptionresnetv2},output-stride=16" --data "$source" \
    --augment "crop=random crop-size=$patch,$patch patches-per-image=${PATCHES:-1500} \
rotation=-20,20 x-translation=-10,10 y-translation=-10,10" --class-weights auto \
    --epochs "${EPOCHS:-10}" --mini-batch-size "${BATCH:-20}" --shuffle every-epoch --seed 1 \
    --solver sgdm --momentum 0.9 --l2-regularization 0.001 \
    --lr "${RATE:-0.03}" --learn-rate-schedule piecewise --learn-rate-drop-period 3 --learn-rate-drop-factor 0.2 \
    --validation-patience 4 --checkpoint-path "$out/checkpoints" --resume auto --verbose-frequency 2 --out "$out/model.onnx"

# A label image and an overlay of each test image, at its own size; then how right they are, each pixel once.
gradpool predict --model "$out/model.onnx" --data "$source" --out "$out/labels/" --overlays "$out/overlays"
gradpool evaluate --model "$out/model.onnx" --data "$source" --per-class \
    --confusion "$out/confusion.png,$out/confusion.csv,$out/confusion.json"
