// Why the job ends early: the first reason reported. Later ones are consequences, for example a
// worker that leaves because the server stops.
//
// Owner: the server. Used on the loop thread.
#pragma once

#include <optional>
#include <utility>

#include "common/base/error.h"

namespace muster {

class FirstFailure {
 public:
  void Set(JobFailure failure) {
    if (!failure_) failure_ = std::move(failure);
  }
  bool is_set() const { return failure_.has_value(); }
  const std::optional<JobFailure>& get() const { return failure_; }

 private:
  std::optional<JobFailure> failure_;
};

}  // namespace muster
