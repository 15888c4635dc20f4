// Extensions of the x86-64 instruction set that a build may require. In C for the reason given in
// check.c.
#pragma once

// Extensions that always come with these (F16C, LZCNT, MOVBE with AVX2) are not checked.
enum ProcessorNeed {
  kNeedSse42 = 1 << 0,
  kNeedPopcnt = 1 << 1,
  kNeedAvx = 1 << 2,
  kNeedAvx2 = 1 << 3,
  kNeedFma = 1 << 4,
  kNeedBmi = 1 << 5,
  kNeedBmi2 = 1 << 6,
  kNeedAvx512f = 1 << 7,
  kNeedAvx512vl = 1 << 8,
  kNeedAvx512bw = 1 << 9,
  kNeedAvx512dq = 1 << 10,
};

// The extensions that the compiler was allowed to use, as a sum of the above values.
extern const unsigned kProcessorNeeds;
