// This file is compiled with the same flags as all other code and records what they allow. It
// contains only data, because any code could use instructions that the processor lacks.
#include "common/base/processor/needs.h"

const unsigned kProcessorNeeds = 0
#ifdef __SSE4_2__
                                 + kNeedSse42
#endif
#ifdef __POPCNT__
                                 + kNeedPopcnt
#endif
#ifdef __AVX__
                                 + kNeedAvx
#endif
#ifdef __AVX2__
                                 + kNeedAvx2
#endif
#ifdef __FMA__
                                 + kNeedFma
#endif
#ifdef __BMI__
                                 + kNeedBmi
#endif
#ifdef __BMI2__
                                 + kNeedBmi2
#endif
#ifdef __AVX512F__
                                 + kNeedAvx512f
#endif
#ifdef __AVX512VL__
                                 + kNeedAvx512vl
#endif
#ifdef __AVX512BW__
                                 + kNeedAvx512bw
#endif
#ifdef __AVX512DQ__
                                 + kNeedAvx512dq
#endif
    ;
