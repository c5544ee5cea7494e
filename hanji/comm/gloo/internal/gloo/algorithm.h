#pragma once

/// Stands in for Gloo's own header, which the wheels of libtorch do not ship. ProcessGroupGloo.hpp
/// holds Gloo objects through pointers only, so names are enough.
