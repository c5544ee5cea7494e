#include "hanji/plan/internal/keys.h"

namespace hanji::plan::keys {

std::vector<Key> data_keys() {
  return {
      text(HANJI_KEY(data.text,
                     "Text file, or folder whose files are read in the byte order of "
                     "their paths. Empty, with empty data.tokens: the embedded text.")),
      text(HANJI_KEY(
          data.tokens,
          "File of token ids, or the PREFIX of two files of Megatron, instead of data.text.")),
      choice(HANJI_KEY(data.format, "Format of data.tokens. auto: by its first bytes and name.")),
      choice(HANJI_KEY(data.vocabulary, "Tokens of a text: its characters, or its bytes.")),
      real(HANJI_KEY(data.validation_fraction,
                     "Share at the end of the data for validation. 0: nothing is evaluated."),
           {0, 0.9}),
  };
}

std::vector<Key> pair_keys() {
  std::vector<Key> keys = {
      choice(HANJI_KEY(
          data.pairs,
          "Pairs of residues instead of text, for evoformers, made from train.seed "
          "when they are read. contacts: sequences sampled from a Potts model, whose "
          "couplings are to be found. paths: graphs, whose shortest paths are. distances: "
          "chains in space, of which a quarter of the distances is known.")),
      integer(HANJI_KEY(data.residues, "Residues of a system, or nodes of a graph."), "residues",
              {8, 4096}),
      integer(HANJI_KEY(data.sequences, "Sequences of a system of contacts."), "sequences",
              {2, 16384}),
      integer(HANJI_KEY(data.systems, "Systems of the training and validation parts together."),
              "systems", {2, 1e12}),
  };
  for (Key& key : keys) key.rare = true;
  return keys;
}

std::vector<Key> image_keys() {
  std::vector<Key> keys = {
      choice(
          HANJI_KEY(data.images,
                    "Images instead of text, for models of images. generated: coloured shapes on "
                    "noise, drawn from train.seed when they are read.")),
      integer(HANJI_KEY(data.image_size, "Side length of an image."), "pixels", {8, 1024}),
      integer(HANJI_KEY(data.classes, "Classes of images: five shapes in as many hues as needed."),
              "classes", {2, 1000}),
      integer(HANJI_KEY(data.image_count, "Images of the training and validation parts together."),
              "images", {2, 1e12}),
      text(HANJI_KEY(
          data.files,
          "A .beton file of labelled images, of hanji data make or of FFCV, or of tokens for "
          "models "
          "of those. Images are data.image_size pixels a side; the largest label gives the number "
          "of classes.")),
      stages(HANJI_KEY(data.stage,
                       "Stages from an image of data.files to a sample, joined by commas or as "
                       "[[data.stage]] tables: random_resized_crop or center_crop, flip, "
                       "vertical_flip, brightness, contrast, saturation, hue, grayscale, "
                       "translate, cutout, normalise, "
                       "mixup, cutmix.")),
      choice(HANJI_KEY(data.corrupt,
                       "What a damaged image of data.files does. stop: ends the run, with its "
                       "number. skip: the next one takes its place.")),
  };
  for (Key& key : keys) key.rare = true;
  return keys;
}

std::vector<Key> loader_keys() {
  std::vector<Key> keys = {
      choice(HANJI_KEY(
          data.order,
          "Order of the samples of an epoch. random: another one in each epoch. sequential: the "
          "file's. quasi: random, from data.pages pages of the file at a time. ffcv, torch: that "
          "of FFCV's RANDOM and of DistributedSampler with the seed train.seed.")),
      choice(HANJI_KEY(
          data.cache,
          "Where pages of data.files are in memory. os: the kernel's cache. process: data.pages of "
          "them, read past that cache (O_DIRECT, io_uring) in the order of the run, and shared by "
          "the ranks of the host.")),
      integer(HANJI_KEY(data.pages,
                        "Pages of a file that data.cache = process keeps, and from which the order "
                        "quasi draws at a time; of a .beton file as large as it says, of tokens 8 "
                        "MiB."),
              "pages", {2, 1e9}),
      choice(HANJI_KEY(
          data.epoch_end,
          "What becomes of the last samples of an epoch, which fill no global batch. continue: the "
          "batch goes on with the next epoch. pad: with the epoch's first samples. drop: they are "
          "left out.")),
      text(HANJI_KEY(
          data.weights,
          "Draws samples of data.files with replacement. balanced: each class as often as any. "
          "Else "
          "the name of a float field with the weight of each sample. Empty: each sample once.")),
      integer(HANJI_KEY(data.workers,
                        "Threads of each rank that read samples, besides the rank's own. They "
                        "change no bit. auto: by the measured times of a sample and of a step."),
              "threads", {0, 256}, Auto::kYes),
      integer(
          HANJI_KEY(data.prefetch,
                    "Steps that data.workers read ahead while one is computed. 0: they read "
                    "the step that is asked. auto: as data.workers, within data.prefetch_bytes."),
          "steps", {0, 64}, Auto::kYes),
      bytes(HANJI_KEY(data.prefetch_bytes,
                      "Most bytes of the samples that a rank reads ahead where data.prefetch is "
                      "auto."),
            {4096, 1e15}),
  };
  for (Key& key : keys) key.rare = true;
  return keys;
}

}  // namespace hanji::plan::keys
