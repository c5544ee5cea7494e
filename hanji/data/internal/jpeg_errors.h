#pragma once

#include <csetjmp>
#include <cstdio>
// after <cstdio>, which it needs
#include <jpeglib.h>

namespace hanji::data::internal {

/// Errors of libjpeg's own work on streams that it has made or may refuse: they return by longjmp to where
/// `jump` was set, with what libjpeg says. Not for the streams of others, whose errors have kinds (JpegReader).
struct JpegWorkErrors {
  jpeg_error_mgr base = {};
  std::jmp_buf jump = {};
  char message[JMSG_LENGTH_MAX] = {};

  /// To be the `err` of an encoder or decoder. Warnings are ignored unless this is changed.
  jpeg_error_mgr* begin() {
    jpeg_std_error(&base);
    base.error_exit = on_error;
    return &base;
  }

  static void on_error(j_common_ptr info) {
    auto& errors = *reinterpret_cast<JpegWorkErrors*>(info->err);  // its first member
    info->err->format_message(info, errors.message);
    std::longjmp(errors.jump, 1);
  }
};

}  // namespace hanji::data::internal
