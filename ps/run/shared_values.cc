#include "ps/run/shared_values.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "common/base/process.h"
#include "common/base/text.h"
#include "common/program/messages.h"

namespace muster {
namespace {

std::string WhyNoKey(const std::string& key) {
  if (!key.empty() && key.size() <= program::kMostKeyBytes) return "";
  return fmt::format("a value with a key of {} bytes", key.size());
}

// The value for an error, if it is short and legible.
std::string ValueText(const std::string& value) {
  constexpr size_t kMost = 80;
  const std::string text = Printable(value, kMost);
  return text == value ? '"' + text + '"' : fmt::format("{} bytes", value.size());
}

}  // namespace

void SharedValues::Answer(uint32_t rank, wire::Answer::Kind kind, const std::string& value) {
  wire::Answer answer;
  answer.set_kind(kind);
  if (kind == wire::Answer::VALUE) answer.set_value(value);
  send_(rank, answer);
}

std::string SharedValues::OnAsk(uint32_t rank, const wire::Ask& ask, int64_t step, Time now) {
  if (std::string why = WhyNoKey(ask.key()); !why.empty()) return why;
  std::erase_if(waiting_, [&](const Asked& one) { return one.rank == rank; });
  const auto claim = claims_.find(ask.key());
  if (const auto value = told_.Find(ask.key())) {
    Answer(rank, wire::Answer::VALUE, value->bytes);
  } else if (claim == claims_.end() && ask.step() < step) {
    Answer(rank, wire::Answer::ABSENT);
  } else if (ask.may_compute() && (claim == claims_.end() || claim->second.rank == rank)) {
    claims_.try_emplace(ask.key(), Claim{rank, now});
    Answer(rank, wire::Answer::COMPUTE);
  } else {
    waiting_.push_back({rank, ask.key(), ask.step(), ask.may_compute()});
  }
  return "";
}

std::string SharedValues::OnTell(std::optional<uint32_t> rank, const wire::Tell& tell) {
  if (std::string why = WhyNoKey(tell.key()); !why.empty()) return why;
  if (tell.value().size() > program::kMostValueBytes) {
    return fmt::format("a value of {} bytes", tell.value().size());
  }
  const auto known = told_.Find(tell.key());
  if (!known) {
    Store(tell.key(), tell.step(), tell.value());
  } else if (known->bytes != tell.value() && !tell.key().starts_with(kBits)) {
    failure_.Set(
        {ExitCode::kFailure, rank,
         fmt::format("{} computed another value for {} at step {}: {} before, {} now",
                     rank ? fmt::format("rank {}", *rank) : "the updater", Printable(tell.key()),
                     tell.step(), ValueText(known->bytes), ValueText(tell.value()))});
  }
  return "";
}

std::vector<std::string> SharedValues::OtherBits() const {
  std::vector<std::string> names;
  for (const auto& [key, value] : told_.All()) {
    if (key.starts_with(kBits)) names.push_back(Printable(key.substr(std::strlen(kBits))));
  }
  return names;
}

std::string SharedValues::Length() const {
  ToldValues::Value newest{.step = -1};
  for (const auto& [key, value] : told_.All()) {
    if (key.starts_with(kLength) && value.step > newest.step) newest = value;
  }
  return newest.bytes;
}

void SharedValues::Put(const std::string& key, int64_t step, const std::string& value) {
  if (!told_.Find(key)) Store(key, step, value);
}

void SharedValues::Store(const std::string& key, int64_t step, const std::string& value) {
  if (told_.bytes() + key.size() + value.size() > kMostBytes) {
    return failure_.Set(
        {ExitCode::kUsage, std::nullopt,
         fmt::format("the values that programs have told take more than {} MiB with {} of step {}",
                     kMostBytes >> 20, Printable(key), step)});
  }
  told_.Put(key, {step, value});
  claims_.erase(key);
  std::erase_if(waiting_, [&](const Asked& one) {
    if (one.key != key) return false;
    Answer(one.rank, wire::Answer::VALUE, value);
    return true;
  });
}

void SharedValues::AtStep(int64_t step) {
  std::erase_if(waiting_, [&](const Asked& one) {
    if (one.step >= step || claims_.contains(one.key)) return false;
    Answer(one.rank, wire::Answer::ABSENT);
    return true;
  });
}

void SharedValues::Drop(uint32_t rank, int64_t step, Time now) {
  std::erase_if(waiting_, [&](const Asked& one) { return one.rank == rank; });
  std::vector<std::string> keys;
  for (const auto& [key, claim] : claims_) {
    if (claim.rank == rank) keys.push_back(key);
  }
  for (const std::string& key : keys) {
    claims_.erase(key);
    const auto next = std::ranges::find_if(
        waiting_, [&](const Asked& one) { return one.key == key && one.may_compute; });
    if (next == waiting_.end()) continue;
    claims_[key] = {next->rank, now};
    Answer(next->rank, wire::Answer::COMPUTE);
    waiting_.erase(next);
  }
  AtStep(step);
}

std::optional<std::pair<uint32_t, std::string>> SharedValues::Late(Time now) const {
  for (const auto& [key, claim] : claims_) {
    if (now - claim.since <= std::chrono::duration<double>(once_s_)) continue;
    return std::pair(claim.rank, fmt::format("it has not computed {} within {:g} s "
                                             "(deadlines.once_s)",
                                             Printable(key), once_s_));
  }
  return std::nullopt;
}

void SharedValues::Extend(std::chrono::steady_clock::duration suspension) {
  for (auto& [key, claim] : claims_) claim.since = WithoutSuspension(claim.since, suspension);
}

void SharedValues::Keep(checkpoint::State& state) const {
  for (const auto& [key, value] : told_.All()) {
    if (key == kStop || key.starts_with(kNow)) continue;
    checkpoint::NamedValue& kept = *state.add_values();
    kept.set_key(key);
    kept.set_step(value.step);
    kept.set_value(value.bytes);
  }
}

void SharedValues::Restore(const checkpoint::State& state) {
  for (const checkpoint::NamedValue& kept : state.values()) {
    if (kept.key() != kStop) told_.Put(kept.key(), {kept.step(), kept.value()});
  }
}

}  // namespace muster
