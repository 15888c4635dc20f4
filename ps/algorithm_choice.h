// Which algorithms the workers compute with, where these are chosen by timing (worker.autotune):
// one of them times, the server keeps what it says, and all get that. The choice is theirs to read.
//
// Owner: the coordinator. Used in the loop's thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "proto/wire.pb.h"
#include "ps/membership.h"

namespace muster {

class AlgorithmChoice {
 public:
  // `members` outlive this.
  explicit AlgorithmChoice(Membership& members) : members_(members) {}

  // It need not be made: a checkpoint has it; or "": the shapes decide.
  void Set(std::string choice) { choice_ = std::move(choice); }
  // A worker is welcome: it is sent the choice, is asked to make it, or has to wait. Nothing, if it
  // does not choose by timing.
  void OnWelcomed(uint32_t rank);
  // What it has chosen, which all others wait for. Why that does not fit, or "".
  std::string OnTuning(uint32_t rank, const wire::Tuning& tuning);
  // The member is gone. If it was to choose, another one does.
  void OnLost(uint32_t rank);

  // Who is choosing.
  std::optional<uint32_t> tuner() const { return tuner_; }
  // Empty: there is none.
  std::string Keep() const { return choice_.value_or(""); }

 private:
  void Send(uint32_t rank);
  bool Tunes(uint32_t rank) const { return members_.roster().at(rank).tunes; }

  Membership& members_;
  std::optional<std::string> choice_;
  std::optional<uint32_t> tuner_;
};

}  // namespace muster
