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
  // Typed on a command line it is a mistake: whoever types it wants something. Others may be there
  // for a longer run, or for the next one.
  bool mistake = false;
  // In a file it can stand for nothing: the default, which a written config spells out.
  bool said = true;
};

// `config`: its number of workers is known. `train_samples`: of the training set, if it is known;
// of made-up data it is.
std::vector<NoEffect> WithoutEffect(const config::Config& config,
                                    std::optional<int64_t> train_samples = {});

}  // namespace muster
