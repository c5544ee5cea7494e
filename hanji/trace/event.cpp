#include "hanji/trace/event.h"

namespace hanji::trace {

std::string_view name_of(Lane lane) {
  switch (lane) {
    case Lane::kMain: return "main";
    case Lane::kCommunication: return "communication";
    case Lane::kData: return "data";
    case Lane::kCheckpoint: return "checkpoint";
  }
  return "unknown";
}

std::string_view name_of(Category category) {
  switch (category) {
    case Category::kStep: return "step";
    case Category::kCompute: return "compute";
    case Category::kCommunication: return "communication";
    case Category::kData: return "data";
    case Category::kCheckpoint: return "checkpoint";
    case Category::kOther: return "other";
    case Category::kSkew: return "skew";
    case Category::kTransfer: return "transfer";
  }
  return "unknown";
}

}  // namespace hanji::trace
