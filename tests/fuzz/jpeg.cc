// A JPEG, with a part of it to decode: the part has the pixels of the whole. The first bytes say
// which part.
#include "tests/fuzz/check_image.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kChoices = 10;
  if (size < kChoices) return 0;
  muster::fuzz::Input input(data + kChoices, size - kChoices);
  muster::fuzz::CheckImage(input.Rest(), {data, kChoices});
  return 0;
}
