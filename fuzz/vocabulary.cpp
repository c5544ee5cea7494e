// A vocabulary as a checkpoint holds it, and the one of a text: both encode what they decode.
#include "hanji/data/vocabulary.h"
#include "fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hanji;
  const std::string_view text = fuzz::text_of(data, size);
  if (const auto read = data::Vocabulary::from_json(text); read.ok()) {
    const auto again = data::Vocabulary::from_json(read->to_json());
    fuzz::require(again.ok() && again->size() == read->size(), "a vocabulary reads back the same");
  } else if (const auto own = data::Vocabulary::characters(text); own.ok()) {
    fuzz::require(own->encode(text).ok(), "a text has its own characters");
  }
  return 0;
}
