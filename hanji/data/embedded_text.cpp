// The text of this library's own sources and docs, put into the object by the assembler: a string
// literal of megabytes would cost the compiler seconds. The build writes a header with the file's path
// and checksum; without the checksum a compiler cache would take an object with another text for this.
#include HANJI_EMBEDDED_TEXT_H

#include "hanji/data/text.h"

asm(R"(
    .section .rodata
    .balign 16
    .local hanji_embedded_text_begin
    .local hanji_embedded_text_end
hanji_embedded_text_begin:
    .incbin ")" HANJI_EMBEDDED_TEXT R"("  /* )" HANJI_EMBEDDED_TEXT_SHA256 R"( */
hanji_embedded_text_end:
    .byte 0
    .previous
)");

extern "C" {
[[gnu::visibility("hidden")]] extern const char hanji_embedded_text_begin[];
[[gnu::visibility("hidden")]] extern const char hanji_embedded_text_end[];
}

namespace hanji::data {

std::string_view embedded_text() {
  return {hanji_embedded_text_begin,
          static_cast<size_t>(hanji_embedded_text_end - hanji_embedded_text_begin)};
}

}  // namespace hanji::data
