// Collects all mistakes in a config, so that one error reports them all, and records the locations
// of settings.
#pragma once

#include <fmt/core.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace muster {

class ConfigErrors {
 public:
  // `file` serves as the location of settings that do not appear anywhere.
  explicit ConfigErrors(std::string file) : file_(std::move(file)) {}

  // The location of each setting: "run.epochs" → "configs/cifar10.txtpb:7". A repeated field has an
  // entry for each element: "model.layer[2].name".
  std::map<std::string, std::string> locations;
  // Given settings that have been removed from Muster, each with its location.
  std::vector<std::string> removed;

  // Returns the location of the key, of its first element, or of the innermost enclosing message
  // that has a location.
  std::string Where(std::string key) const;

  // Records a mistake with its location, its key and the expected value.
  template <typename... Args>
  void Fail(const std::string& key, fmt::format_string<Args...> format, Args&&... args) {
    Add(key, fmt::format("{}: {}: {}", Where(key), key,
                         fmt::format(format, std::forward<Args>(args)...)));
  }
  // Records a mistake as a complete line.
  void Add(const std::string& key, const std::string& line);
  // Records that this setting could not be read. Mistakes that may follow from it are suppressed.
  void AddUnread(const std::string& key, const std::string& line);

  bool empty() const { return lines_.empty(); }
  size_t noted() const { return noted_; }  // including suppressed ones
  // Throws Error(kUsage) with a line for each mistake.
  void ThrowIfAny() const;

 private:
  bool MayFollow(const std::string& key) const;

  std::string file_;
  size_t noted_ = 0;
  std::vector<std::string> lines_;
  std::vector<std::string> unread_;  // keys without indices
};

}  // namespace muster
