// What a program says of itself before it joins: muster_set_*.
#include <cmath>
#include <cstring>

#include "client/job.h"
#include "client/muster.h"
#include "common/program/messages.h"

using namespace muster::program;

extern "C" {

int muster_set_optimizer(muster_job* job, const char* optimizer, double learning_rate) {
  if (job->has_joined || job->is_over) {
    return job->Fail(MUSTER_USAGE, "muster_set_optimizer: call it before muster_join");
  }
  if (optimizer == nullptr || *optimizer == '\0') {
    return job->Fail(MUSTER_USAGE, "muster_set_optimizer: expected an optimizer, got nothing");
  }
  job->optimizer = optimizer;
  return muster_set_learning_rate(job, learning_rate);
}

int muster_set_learning_rate(muster_job* job, double learning_rate) {
  if (job->optimizer.empty()) {
    return job->Fail(MUSTER_USAGE, "muster_set_learning_rate: call muster_set_optimizer first");
  }
  if (!std::isfinite(learning_rate) || learning_rate < 0) {
    return job->Fail(MUSTER_USAGE, "the learning rate: expected 0 or more, got %g", learning_rate);
  }
  job->learning_rate = learning_rate;
  return MUSTER_OK;
}

void muster_set_fingerprint(muster_job* job, uint64_t fingerprint) {
  job->fingerprint = fingerprint;
}

int muster_set_run(muster_job* job, int64_t batch, int64_t epochs) {
  if (job->has_joined || job->is_over) {
    return job->Fail(MUSTER_USAGE, "muster_set_run: call it before muster_join");
  }
  if (batch < 0 || epochs < 0) {
    return job->Fail(MUSTER_USAGE, "muster_set_run: expected numbers of at least 0, got %lld, %lld",
                     static_cast<long long>(batch), static_cast<long long>(epochs));
  }
  job->batch = batch;
  job->epochs = epochs;
  return MUSTER_OK;
}

int muster_set_drop_last(muster_job* job, int drop_last) {
  if (job->has_joined || job->is_over) {
    return job->Fail(MUSTER_USAGE, "muster_set_drop_last: call it before muster_join");
  }
  job->drop_last = drop_last != 0;
  return MUSTER_OK;
}

int muster_set_in_order(muster_job* job, int in_order) {
  if (job->has_joined || job->is_over) {
    return job->Fail(MUSTER_USAGE, "muster_set_in_order: call it before muster_join");
  }
  job->in_order = in_order != 0;
  return MUSTER_OK;
}

int muster_set_loss_scaling(muster_job* job, int on) {
  if (job->has_joined || job->is_over) {
    return job->Fail(MUSTER_USAGE, "muster_set_loss_scaling: call it before muster_join");
  }
  job->loss_scaling = on != 0;
  return MUSTER_OK;
}

int muster_set_arithmetic(muster_job* job, const char* text) {
  if (job->has_joined || job->is_over) {
    return job->Fail(MUSTER_USAGE, "muster_set_arithmetic: call it before muster_join");
  }
  const size_t bytes = text == nullptr ? 0 : std::strlen(text);
  if (bytes > kMostArithmeticBytes) {
    return job->Fail(MUSTER_USAGE,
                     "muster_set_arithmetic: expected a text of at most 1,024 bytes, got %zu: "
                     "name the device and the libraries only",
                     bytes);
  }
  job->arithmetic.assign(bytes == 0 ? "" : text);
  return MUSTER_OK;
}

}  // extern "C"
