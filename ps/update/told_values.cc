#include "ps/update/told_values.h"

#include <utility>

namespace muster {

void ToldValues::Put(const std::string& key, Value value) {
  const std::lock_guard lock(mutex_);
  bytes_ += key.size() + value.bytes.size();
  values_.insert_or_assign(key, std::move(value));
  told_.notify_all();
}

std::optional<ToldValues::Value> ToldValues::Find(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = values_.find(key);
  return found == values_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<ToldValues::Value> ToldValues::Await(const std::string& key,
                                                   std::chrono::milliseconds patience) const {
  std::unique_lock lock(mutex_);
  if (!told_.wait_for(lock, patience, [&] { return values_.contains(key); })) return std::nullopt;
  return values_.at(key);
}

std::map<std::string, ToldValues::Value> ToldValues::All() const {
  const std::lock_guard lock(mutex_);
  return values_;
}

size_t ToldValues::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace muster
