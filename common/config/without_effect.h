// Settings that are there and change nothing, because of other settings: a warm-up that outlasts
// the run, a number of skipped steps where none is skipped. All of them are in one table,
// without_effect.cc; those that contradict their message's type are for_types.h's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/config.pb.h"

namespace muster {

struct NoEffect {
  std::string key, value, reason;
};

// A setting with its default's value is none of them: a written config spells defaults out.
// `config`: its number of workers is known. `train_samples`: of the training set, if it is known;
// of made-up data it is.
std::vector<NoEffect> WithoutEffect(const config::Config& config,
                                    std::optional<int64_t> train_samples = {});

}  // namespace muster
