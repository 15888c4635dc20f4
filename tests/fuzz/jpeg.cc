// Decodes a part of a JPEG: it has the pixels of the whole. The first bytes select the part.
#include "tests/fuzz/check_image.h"

FUZZ_TARGET(jpeg) {
  constexpr size_t kChoices = 10;
  if (size < kChoices) return 0;
  muster::fuzz::Input input(data + kChoices, size - kChoices);
  muster::fuzz::CheckImage(input.Rest(), {data, kChoices});
  return 0;
}
