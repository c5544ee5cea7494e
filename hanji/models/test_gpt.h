#pragma once

#include <utility>

#include "hanji/models/gpt.h"

namespace hanji::models {

/// A GPT that each rank of an axis has whole, but that is counted once by these ranks.
class WholeOnEachRank : public GptImpl {
 public:
  WholeOnEachRank(const GptOptions& options, layout::Cut cut)
      : GptImpl(options), cut_(std::move(cut)) {}
  layout::Cut cut() const override { return cut_; }

 private:
  layout::Cut cut_;
};

}  // namespace hanji::models
