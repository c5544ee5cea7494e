#pragma once

#include "hanji/train/dataset.h"

namespace hanji::train {

/// The text that comes with the library, in samples of 8 bytes.
inline const Dataset& bytes_of_text() {
  static const Dataset opened = [] {
    plan::DataConfig bytes;
    bytes.vocabulary = plan::VocabularyKind::kByte;
    return open_dataset(bytes, 8, plan::kAuto).or_throw();
  }();
  return opened;
}

}  // namespace hanji::train
