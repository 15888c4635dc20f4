// Stands in for libcuda.so.1. Shows the GPUs of FAKE_CARDS in CUDA's order, filtered by
// CUDA_VISIBLE_DEVICES according to CUDA's rules.
#include <cctype>
#include <csignal>

#include "tests/cli/gpu/fake_cards.h"

namespace {

using fake::Card;

std::vector<Card> visible;  // set by cuInit

std::string UuidText(const Card& card) { return fake::Of(card, "uuid"); }

// A GPU in MIG mode is replaced by its parts.
std::vector<Card> InCudaOrder() {
  std::vector<Card> cards;
  for (Card& card : fake::ReadCards()) {
    const std::vector<std::string> parts = fake::Split(fake::Of(card, "parts"), ',');
    if (parts.empty()) cards.push_back(card);
    for (const std::string& part : parts) {
      card["uuid"] = part;
      cards.push_back(card);
    }
  }
  const char* const order = std::getenv("CUDA_DEVICE_ORDER");
  if (order == nullptr || std::string(order) != "PCI_BUS_ID") {
    std::stable_sort(cards.begin(), cards.end(), [](const Card& a, const Card& b) {
      return fake::NumberOf(a, "speed", 0) > fake::NumberOf(b, "speed", 0);
    });
  }
  return cards;
}

std::vector<Card> Visible() {
  const std::vector<Card> all = InCudaOrder();
  const char* const value = std::getenv("CUDA_VISIBLE_DEVICES");
  if (value == nullptr) return all;
  std::vector<Card> left;
  for (const std::string& word : fake::Split(value, ',')) {
    const Card* found = nullptr;
    for (size_t i = 0; i < all.size(); ++i) {
      const bool number = !word.empty() && std::isdigit(static_cast<unsigned char>(word[0])) != 0;
      const bool means = number ? std::to_string(i) == word
                                : word.size() > 4 && UuidText(all[i]).starts_with(word);
      if (means) found = &all[i];
    }
    if (found == nullptr) break;  // CUDA ignores the rest of the list
    left.push_back(*found);
  }
  return left;
}

}  // namespace

extern "C" {

int cuInit(unsigned) {
  fake::HangIfAny("cuda");
  visible = Visible();
  for (const Card& card : visible) {
    if (fake::Of(card, "crash") == "1") ::raise(SIGKILL);
  }
  return visible.empty() ? 100 : 0;
}
int cuDeviceGetCount(int* count) {
  *count = static_cast<int>(visible.size());
  return 0;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return static_cast<size_t>(ordinal) < visible.size() ? 0 : 101;
}
// Writes the hex digits of "GPU-00112233-…" as bytes.
int cuDeviceGetUuid_v2(char* bytes, int device) {
  std::string digits;
  for (const char c : UuidText(visible.at(static_cast<size_t>(device))).substr(4)) {
    if (c != '-') digits += c;
  }
  digits.resize(32, '0');
  for (size_t i = 0; i < 16; ++i) {
    bytes[i] = static_cast<char>(std::stoi(digits.substr(2 * i, 2), nullptr, 16));
  }
  return 0;
}

}  // extern "C"
