// Whether a worker fits the job that it wants to join: token, release, graph, config, data.
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

// What a worker must present to join.
struct JoinTerms {
  std::string token;
  uint64_t job = 0;
  uint32_t workers = 0;               // with which the job starts
  std::vector<std::string> settings;  // common/config/compute_settings.h
  uint32_t seats = 0;                 // for more workers later; 0: as many as `workers`
  uint32_t least = 1;                 // with fewer it does not start
};

// The data that a worker sees.
struct SeenData {
  int64_t train_samples = 0, test_samples = 0, validation_samples = 0;
  uint64_t fingerprint = 0;
};

class JoinCheck {
 public:
  JoinCheck(const VariableLayout& layout, const JoinTerms& terms)
      : layout_(layout), terms_(terms) {}

  bool HasToken(const wire::Hello& hello) const;
  // Why the worker cannot speak with this server, or "": before it is given a rank.
  std::string CheckProtocol(const wire::Hello& hello) const;
  // Why the worker cannot compute this job on this rank, or "".
  std::string CheckWork(uint32_t rank, const wire::Hello& hello) const;
  // The worker has joined. All later ones must see the same data as the first one.
  void Joined(uint32_t rank, const wire::Hello& hello);

  const std::optional<uint32_t>& first() const { return first_; }
  const SeenData& data() const { return data_; }  // what the first one saw

 private:
  std::string CheckGraph(const wire::Hello& hello) const;
  std::string CheckSettings(const wire::Hello& hello) const;
  std::string CheckData(uint32_t rank, const wire::Hello& hello) const;

  const VariableLayout& layout_;
  const JoinTerms& terms_;
  std::optional<uint32_t> first_;
  SeenData data_;
};

}  // namespace muster
