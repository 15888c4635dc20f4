// Checks whether a worker matches the job: token, release, graph, config and data.
//
// Owner: the roster.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/graph/variable_layout.h"
#include "proto/wire.pb.h"

namespace muster {

// The host that a worker names, made safe to be stored and shown beside other words.
std::string HostOf(const wire::Hello& hello);
// "rank 1 (host lab3, pid 77)".
std::string WorkerName(uint32_t rank, const std::string& host, int64_t pid);

// What a worker must present to join.
struct JoinTerms {
  std::string token;
  uint64_t job = 0;
  uint32_t workers = 0;               // number of workers that the job starts with
  std::vector<std::string> settings;  // common/config/compute_settings.h
  uint32_t seats = 0;                 // number of ranks; 0: equal to `workers`
  uint32_t least = 1;                 // minimum number of workers for the start
};

// The data that a worker sees.
struct SeenData {
  int64_t train_samples = 0, test_samples = 0, validation_samples = 0;
  int64_t global_batch = 0, epochs = 0;  // as a program says them; 0: it does not
  bool drop_last = false;                // the same
  std::optional<bool> loss_scaling;      // the same
  uint64_t fingerprint = 0, contents = 0;
};

class JoinCheck {
 public:
  JoinCheck(const VariableLayout& layout, const JoinTerms& terms)
      : layout_(layout), terms_(terms) {}

  bool HasToken(const wire::Hello& hello) const;
  // Checks token and protocol version before the worker gets a rank. Returns an error or "".
  std::string CheckProtocol(const wire::Hello& hello) const;
  // Checks whether the worker can take part with this rank. Returns an error or "".
  std::string CheckWork(uint32_t rank, const wire::Hello& hello) const;
  // Called when a worker has joined. All later ones must have the same data as the first one.
  void Joined(uint32_t rank, const wire::Hello& hello);
  // Called when nobody is left before the start: the next worker may have other data.
  void Forget() {
    first_.reset();
    arithmetic_.clear();
  }

  const std::optional<uint32_t>& first() const { return first_; }
  const SeenData& data() const { return data_; }  // data of the first worker

 private:
  std::string CheckGraph(const wire::Hello& hello) const;
  std::string CheckSettings(const wire::Hello& hello) const;
  std::string CheckData(uint32_t rank, const wire::Hello& hello) const;
  // Programs that say what their bits depend on must say the same.
  std::string CheckArithmetic(uint32_t rank, const wire::Hello& hello) const;

  const VariableLayout& layout_;
  const JoinTerms& terms_;
  std::optional<uint32_t> first_;
  std::string first_name_;
  std::string arithmetic_, arithmetic_name_;  // of the first program that has said it
  SeenData data_;
};

}  // namespace muster
