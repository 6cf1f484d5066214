#!/usr/bin/env bash
# Train DeepLab v3+ on random patches, predict the class of each pixel in windows, and compute the confusion matrix.
#
#   ./segmentation.sh SOURCE [OUT]
#
# SOURCE: images with label images (docs/data.md, "A class for each pixel"). OUT: a new folder for the model, checkpoints, label
# images, overlays and the confusion matrix (default ./segmentation-out). Environment variables: BACKBONE, PATCH, PATCHES, EPOCHS,
# BATCH, RATE.
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
source=$1 out=${2:-segmentation-out}
patch=${PATCH:-512}
mkdir -p "$out"

# Print the number of pixels and the loss weight of each class.
gradpool data show "$source"

# Train on random patches, rotated and translated. An epoch has images x patches samples; no patch is stored.
gradpool train --network "deeplabv3plus:backbone=${BACKBONE:-inceptionresnetv2},output-stride=16" --data "$source" \
    --augment "crop=random crop-size=$patch,$patch patches-per-image=${PATCHES:-1500} \
rotation=-20,20 x-translation=-10,10 y-translation=-10,10" --class-weights auto \
    --epochs "${EPOCHS:-10}" --mini-batch-size "${BATCH:-20}" --shuffle every-epoch --seed 1 \
    --solver sgdm --momentum 0.9 --l2-regularization 0.001 \
    --lr "${RATE:-0.03}" --learn-rate-schedule piecewise --learn-rate-drop-period 3 --learn-rate-drop-factor 0.2 \
    --validation-patience 4 --checkpoint-path "$out/checkpoints" --resume auto --verbose-frequency 2 --out "$out/model.onnx"

# Write a label image and an overlay of each test image, at its own size. Then measure the accuracy; each pixel counts once.
gradpool predict --model "$out/model.onnx" --data "$source" --out "$out/labels/" --overlays "$out/overlays"
gradpool evaluate --model "$out/model.onnx" --data "$source" --per-class \
    --confusion "$out/confusion.png,$out/confusion.csv,$out/confusion.json"
