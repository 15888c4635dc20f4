// The state behind a muster_job, and its conversation with the helper.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "client/helper.h"
#include "client/muster.h"
#include "common/program/messages.h"

namespace muster::program {

struct Described {
  std::string name;
  std::vector<int64_t> shape;
  Variable settings{};
  size_t offset = 0, count = 0;  // in floats
};

}  // namespace muster::program

struct muster_job {
  std::string error;
  std::vector<muster::program::Described> variables;
  size_t floats = 0;        // of one buffer
  float* memory = nullptr;  // weights, then gradient
  int memory_fd = -1;
  muster::program::Helper helper;
  muster::program::Joined joined{};
  bool has_joined = false, is_over = false, has_last_weights = false;
  bool asked = false;            // Next was sent, and the answer has not come
  bool asked_value = false;      // Ask was sent, and the answer has not come
  std::string asked_key, value;  // of the last Ask
  bool at_work = false, has_reported = false;
  int64_t steps = 0;  // of the complete run
  uint64_t fingerprint = 0;
  int64_t batch = 0, epochs = 0;  // 0: not said
  int drop_last = -1;             // not said
  bool in_order = false;
  int loss_scaling = -1;  // not said
  std::string optimizer, arithmetic;
  double learning_rate = std::numeric_limits<double>::quiet_NaN();
  double weight = std::numeric_limits<double>::quiet_NaN();  // of the current slice
  std::vector<uint64_t> pushed;                              // written, but not sent yet
  size_t pushed_floats = 0;
  std::vector<int64_t> samples, planned;
  std::vector<std::string> scalars;  // names, of the current slice or block
  std::string state;                 // restored
  muster_work work{};

  ~muster_job();
  __attribute__((format(printf, 3, 4))) int Fail(int code, const char* format, ...);
  bool Allocate();
  int Send(muster::program::Kind kind, const void* body, size_t bytes, int with_fd = -1);
  int SendText(muster::program::Kind kind, const std::string& text) {
    return Send(kind, text.data(), text.size());
  }
  int Lost();
  int Receive(muster::program::Kind& kind, std::string& body);
  int ReadEnd(const std::string& body);
  int RequireWork(const char* call);
  // Whether nothing but muster_ask may be called, or the key does not fit.
  int CheckKey(const char* call, const char* key);
  bool Updates() const { return work.kind == MUSTER_UPDATE || work.kind == MUSTER_SAVE; }
};
