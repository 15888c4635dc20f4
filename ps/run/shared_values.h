// Values that are the same in all processes of a program's job: who asks, who computes, and what
// has been told. While a process computes, the others wait for its value; if it is lost, the one
// that has waited longest and may compute does it.
//
// Pure logic: no link, no clock. Handlers return why a message does not fit, or "".
//
// Owner: the run. Used on the loop thread; told() on any.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/checkpoint.pb.h"
#include "proto/wire.pb.h"
#include "ps/run/first_failure.h"
#include "ps/update/told_values.h"

namespace muster {

class SharedValues {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Send = std::function<void(uint32_t rank, const wire::Answer& answer)>;
  // A Tell of this key ends the run. A run that is resumed does not have it: its program tells it
  // once more.
  static constexpr const char* kStop = "stop";
  // Keys that begin so are compared only within this server's time.
  static constexpr const char* kNow = "now:";
  // Keys that begin so name what may give other runs other bits; the first value counts.
  static constexpr const char* kBits = "bits:";
  // Keys that begin so say how many steps an open run will have, as far as the program knows.
  static constexpr const char* kLength = "length:";
  static constexpr size_t kMostBytes = 64 << 20;

  // `failure` must outlive this object. `once_s`: the limit for a computation.
  SharedValues(double once_s, FirstFailure& failure, Send send)
      : once_s_(once_s), failure_(failure), send_(std::move(send)) {}

  // `step`: the current one.
  std::string OnAsk(uint32_t rank, const wire::Ask& ask, int64_t step, Time now);
  // Without a rank: the process that updates the weights.
  std::string OnTell(std::optional<uint32_t> rank, const wire::Tell& tell);
  // The names that follow kBits.
  std::vector<std::string> OtherBits() const;
  // The newest value of kLength, or "".
  std::string Length() const;
  // A value of the server's own.
  void Put(const std::string& key, int64_t step, const std::string& value);
  // The run has reached this step: what nobody has computed before is absent.
  void AtStep(int64_t step);
  // The rank has another process or none from now on. `step`: the current one.
  void Drop(uint32_t rank, int64_t step, Time now);

  // Whether a process computes a value.
  bool computing() const { return !claims_.empty(); }
  // A rank that has computed for too long, and why it is lost.
  std::optional<std::pair<uint32_t, std::string>> Late(Time now) const;
  void Extend(std::chrono::steady_clock::duration suspension);

  // The run has failed.
  void Close() { told_.Close(); }
  void Keep(checkpoint::State& state) const;
  void Restore(const checkpoint::State& state);
  const ToldValues& told() const { return told_; }

 private:
  struct Asked {
    uint32_t rank;
    std::string key;
    int64_t step;
    bool may_compute;
  };
  struct Claim {
    uint32_t rank;
    Time since;
  };
  void Answer(uint32_t rank, wire::Answer::Kind kind, const std::string& value = "");
  void Store(const std::string& key, int64_t step, const std::string& value);

  const double once_s_;
  FirstFailure& failure_;
  const Send send_;
  ToldValues told_;
  std::vector<Asked> waiting_;           // the longest-waiting first; at most one of each rank
  std::map<std::string, Claim> claims_;  // by key
};

}  // namespace muster
