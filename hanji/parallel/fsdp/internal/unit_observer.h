#pragma once

#include <cstddef>
#include <vector>

#include "hanji/lens/observer.h"

namespace hanji::parallel {

class ShardedModel;

/// Finds the units of an unmodified module by the parameters that its operations read.
class UnitObserver : public lens::Observer {
 public:
  explicit UnitObserver(ShardedModel& model) : model_(model), scope_(*this) {}

  void before(const lens::Operation& operation) override;
  void after(const lens::Operation& operation) override;

 private:
  ShardedModel& model_;
  std::vector<size_t> units_;  ///< That the operation on its way reads.
  lens::Scope scope_;
};

}  // namespace hanji::parallel
