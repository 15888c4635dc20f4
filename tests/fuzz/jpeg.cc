// Decodes a part of a JPEG: it has the pixels of the whole. The first bytes select the part.
#include "tests/fuzz/check_image.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kChoices = 10;
  if (size < kChoices) return 0;
  muster::fuzz::Input input(data + kChoices, size - kChoices);
  muster::fuzz::CheckImage(input.Rest(), {data, kChoices});
  return 0;
}
