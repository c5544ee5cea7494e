#!/bin/sh
# Exercise 5: fill in each `____`, then: sh images.sh
set -eu

# A folder of images: photos/CLASS/NUMBER.png, as a camera or a download would leave them.
if [ ! -d photos ]; then
  hanji data make --generated 240 --size 32 --classes 4 --out shapes.beton
  hanji data convert shapes.beton --to photos
fi

# One file of the folder, and a check of every byte of it.
[ -f photos.beton ] || hanji data make --folder photos --out photos.beton
hanji data verify photos.beton
hanji data info photos.beton

# Classes that the file knows:
classes=$(ls photos | wc -l)

# Train from the file on two ranks. After a change: rm -r run
source=data.files=photos.beton
[ -d run ] || hanji train --out run --ranks 2 --steps 60 --set model.preset=resnet-tiny \
  --set $source --set data.image_size=32 --set train.global_batch=32

# Steps of an epoch, training samples / global batch, with its fraction, as 12.5 (a tenth of the file validates):
steps_per_epoch=$(awk "BEGIN {print 240 * 0.9 / 32}")

echo "source=$source"
echo "classes=$classes"
echo "steps_per_epoch=$steps_per_epoch"
