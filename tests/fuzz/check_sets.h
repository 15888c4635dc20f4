// What holds for every data set that could be opened, whatever was in its files.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tests/fuzz/fuzz.h"
#include "worker/data/dataset.h"

namespace muster::fuzz {

inline void CheckSet(const Dataset& set) {
  std::vector<uint8_t> buffer;
  for (int64_t i = 0; i < set.size(); ++i) {
    Require(set.Label(i) >= 0 && set.Label(i) < set.classes(), "a label out of range");
    const std::span<const uint8_t> pixels = set.Planes(i, buffer);
    Require(static_cast<int64_t>(pixels.size()) == set.shape().elements(), "pixels are missing");
    volatile uint8_t last = pixels.back();
    (void)last;
  }
}

// `test`: opened without the training files.
inline void CheckSets(const Datasets& sets, const Dataset& test) {
  CheckSet(*sets.train);
  CheckSet(*sets.test);
  Require(test.Fingerprint() == sets.test->Fingerprint(),
          "another test set without the training files");
}

}  // namespace muster::fuzz
