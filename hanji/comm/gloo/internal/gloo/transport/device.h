#pragma once

/// Stands in for Gloo's own header, which the wheels of libtorch do not ship. ProcessGroupGloo.hpp
/// holds Gloo objects through pointers only, so names are enough.
namespace gloo::transport {
class Device;
class UnboundBuffer;
}  // namespace gloo::transport
