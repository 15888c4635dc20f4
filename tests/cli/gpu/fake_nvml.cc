// Stands in for libnvidia-ml.so.1. The types are declared again here, from NVML's documentation, to
// detect mistakes in those of common/gpu.
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>

#include "tests/cli/gpu/fake_cards.h"

namespace {

enum { kSuccess = 0, kInvalid = 2, kNotSupported = 3, kNotFound = 6, kTooSmall = 7 };

using fake::Card;

// A handle is 1 + the GPU's index, plus 1000 * (1 + the part's index) for a MIG part.
std::optional<Card> CardOf(void* device) {
  const std::vector<Card> cards = fake::ReadCards();
  const auto number = reinterpret_cast<uintptr_t>(device) % 1000;
  return number >= 1 && number <= cards.size() ? std::optional(cards[number - 1]) : std::nullopt;
}
uintptr_t PartOf(void* device) { return reinterpret_cast<uintptr_t>(device) / 1000; }

// The status that the GPU's line gives for this query. The default is success.
int AnswerOf(const std::optional<Card>& card, const std::string& query) {
  if (!card) return 15;  // the GPU is lost
  fake::HangIf(*card, query);
  for (const std::string& word : fake::Split(fake::Of(*card, "fail"), ',')) {
    const std::vector<std::string> parts = fake::Split(word, ':');
    if (parts[0] == query) return std::atoi(parts[1].c_str());
  }
  return kSuccess;
}

int CopyText(const std::string& text, char* to, unsigned size) {
  if (text.size() + 1 > size) return kTooSmall;
  std::memcpy(to, text.c_str(), text.size() + 1);
  return kSuccess;
}

int Number(void* device, const char* query, unsigned* value, long long otherwise,
           long long scale = 1) {
  const std::optional<Card> card = CardOf(device);
  if (const int answer = AnswerOf(card, query); answer != kSuccess) return answer;
  if (PartOf(device) != 0) return kNotSupported;
  *value = static_cast<unsigned>(fake::NumberOf(*card, query, otherwise) * scale);
  return kSuccess;
}

struct Bytes {
  unsigned long long total, used, free;
};

int MemoryOf(void* device, Bytes& bytes) {
  const std::optional<Card> card = CardOf(device);
  if (const int answer = AnswerOf(card, "memory"); answer != kSuccess) return answer;
  constexpr long long kMebibyte = 1024 * 1024;
  const long long total = fake::NumberOf(*card, "total", 80000);
  const long long used = fake::NumberOf(*card, "used", 4);
  bytes.total = static_cast<unsigned long long>(total * kMebibyte);
  bytes.used = static_cast<unsigned long long>(used * kMebibyte);
  bytes.free =
      static_cast<unsigned long long>(fake::NumberOf(*card, "free", total - used) * kMebibyte);
  return kSuccess;
}

struct Process {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};
static_assert(sizeof(Process) == 24);

int Processes(void* device, const char* key, unsigned* count, Process* processes) {
  const std::optional<Card> card = CardOf(device);
  if (const int answer = AnswerOf(card, key); answer != kSuccess) return answer;
  const std::vector<std::string> words = fake::Split(fake::Of(*card, key), ',');
  const unsigned room = *count;
  *count = static_cast<unsigned>(words.size());
  if (words.size() > room) return kTooSmall;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::vector<std::string> parts = fake::Split(words[i], ':');
    processes[i] = {static_cast<unsigned>(std::atoi(parts[0].c_str())), ULLONG_MAX, 0, 0};
    if (parts.size() > 1) processes[i].used = std::strtoull(parts[1].c_str(), nullptr, 10) << 20;
  }
  return kSuccess;
}

void SetBits(unsigned long* words, unsigned size, int first, int last) {
  constexpr int kWord = sizeof(unsigned long) * CHAR_BIT;
  for (int bit = first; bit <= last; ++bit) {
    if (static_cast<unsigned>(bit / kWord) < size) words[bit / kWord] |= 1ul << (bit % kWord);
  }
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  fake::HangIfAny("init");
  return std::getenv("FAKE_NVML_BROKEN") != nullptr ? 9 : kSuccess;
}
int nvmlShutdown() { return kSuccess; }
const char* nvmlErrorString(int result) {
  return result == 9 ? "Driver Not Loaded" : result == 15 ? "GPU is lost" : "Unknown Error";
}
int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  return CopyText("580.65.06", text, size);
}

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(fake::ReadCards().size());
  return kSuccess;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  const std::vector<Card> cards = fake::ReadCards();
  if (index >= cards.size()) return kInvalid;
  if (const int answer = AnswerOf(cards[index], "handle"); answer != kSuccess) return answer;
  *device = reinterpret_cast<void*>(uintptr_t{index} + 1);
  return kSuccess;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) {
  unsigned domain = 0, bus = 0;
  if (std::sscanf(id, "%x:%x:", &domain, &bus) != 2 || bus == 0) return kInvalid;
  const int answer = nvmlDeviceGetHandleByIndex_v2(bus - 1, device);
  if (answer == kSuccess) fake::HangIf(*CardOf(*device), "search");
  return answer;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  const std::vector<Card> cards = fake::ReadCards();
  for (unsigned i = 0; i < cards.size(); ++i) {
    if (fake::Of(cards[i], "uuid") == uuid) return nvmlDeviceGetHandleByIndex_v2(i, device);
  }
  return kNotFound;
}
int nvmlDeviceGetUUID(void* device, char* text, unsigned size) {
  const std::optional<Card> card = CardOf(device);
  if (const int answer = AnswerOf(card, "uuid"); answer != kSuccess) return answer;
  if (PartOf(device) == 0) return CopyText(fake::Of(*card, "uuid"), text, size);
  return CopyText(fake::Split(fake::Of(*card, "parts"), ',').at(PartOf(device) - 1), text, size);
}
int nvmlDeviceGetName(void* device, char* text, unsigned size) {
  const std::optional<Card> card = CardOf(device);
  if (const int answer = AnswerOf(card, "name"); answer != kSuccess) return answer;
  return CopyText(fake::WithSpaces(fake::Of(*card, "name", "Fake_H100")), text, size);
}

struct PciInfo {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char bus_id[32];
};
static_assert(sizeof(PciInfo) == 68);
int nvmlDeviceGetPciInfo_v3(void* device, PciInfo* info) {
  const std::optional<Card> card = CardOf(device);
  if (const int answer = AnswerOf(card, "pci"); answer != kSuccess) return answer;
  char bus[32];
  std::snprintf(bus, sizeof bus, "00000000:%02X:00.0",
                static_cast<unsigned>(reinterpret_cast<uintptr_t>(device) % 256));
  return CopyText(fake::Of(*card, "pci", bus), info->bus_id, sizeof info->bus_id);
}

struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
int nvmlDeviceGetMemoryInfo_v2(void* device, MemoryV2* memory) {
  if (memory->version != 0x02000028) return 25;  // argument version mismatch
  Bytes bytes{};
  if (const int answer = MemoryOf(device, bytes); answer != kSuccess) return answer;
  *memory = {memory->version, bytes.total, 0, bytes.free, bytes.used};
  return kSuccess;
}

struct Utilization {
  unsigned gpu, memory;
};
int nvmlDeviceGetUtilizationRates(void* device, Utilization* utilization) {
  utilization->memory = 0;
  const int answer = Number(device, "util", &utilization->gpu, 0);
  const std::optional<Card> card = CardOf(device);
  static int calls = 0;
  if (card && !fake::Of(*card, "rests").empty() && calls++ > 0) utilization->gpu = 0;
  return answer;
}
int nvmlDeviceGetTemperature(void* device, int sensor, unsigned* value) {
  return sensor != 0 ? kInvalid : Number(device, "temp", value, 35);
}
int nvmlDeviceGetTemperatureThreshold(void* device, int which, unsigned* value) {
  return which != 1 ? kInvalid : Number(device, "slow", value, 87);
}
int nvmlDeviceGetPowerUsage(void* device, unsigned* value) {
  return Number(device, "power", value, 70, 1000);
}
int nvmlDeviceGetEnforcedPowerLimit(void* device, unsigned* value) {
  return Number(device, "limit", value, 700, 1000);
}
int nvmlDeviceGetComputeMode(void* device, int* mode) {
  unsigned value = 0;
  const int answer = Number(device, "mode", &value, 0);
  *mode = static_cast<int>(value);
  return answer;
}

int nvmlDeviceGetEccMode(void* device, int* now, int* pending) {
  const std::optional<Card> card = CardOf(device);
  if (!card || fake::Of(*card, "ecc").empty()) return kNotSupported;
  *now = *pending = 1;
  return kSuccess;
}
int nvmlDeviceGetTotalEccErrors(void* device, int kind, int counter, unsigned long long* count) {
  unsigned value = 0;
  if (kind != 1 || counter != 0) return kInvalid;
  const int answer = Number(device, "ecc", &value, 0);
  *count = value;
  return answer;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, Process* processes) {
  return Processes(device, "pids", count, processes);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(void* device, unsigned* count, Process* processes) {
  return Processes(device, "draws", count, processes);
}

int nvmlDeviceGetMigMode(void* device, unsigned* now, unsigned* pending) {
  const std::optional<Card> card = CardOf(device);
  if (!card) return 15;
  *now = *pending = fake::Of(*card, "parts").empty() ? 0 : 1;
  return kSuccess;
}
int nvmlDeviceGetMaxMigDeviceCount(void*, unsigned* count) {
  *count = 7;
  return kSuccess;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void* device, unsigned index, void** part) {
  const std::optional<Card> card = CardOf(device);
  if (!card) return 15;
  if (index >= fake::Split(fake::Of(*card, "parts"), ',').size()) return kNotFound;
  *part = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(device) + 1000 * (index + 1));
  return kSuccess;
}

int nvmlDeviceGetP2PStatus(void* a, void* b, int what, int* status) {
  const std::optional<Card> one = CardOf(a), other = CardOf(b);
  if (!one || !other || what != 2) return kInvalid;
  const std::string letter = fake::Of(*one, "nvlink");
  *status = !letter.empty() && letter == fake::Of(*other, "nvlink") ? 0 : 5;
  return kSuccess;
}
int nvmlDeviceGetTopologyCommonAncestor(void* a, void* b, int* level) {
  const std::optional<Card> one = CardOf(a), other = CardOf(b);
  if (!one || !other) return kInvalid;
  const std::string letter = fake::Of(*one, "pcie");
  *level = !letter.empty() && letter == fake::Of(*other, "pcie") ? 10
           : fake::Of(*one, "node") == fake::Of(*other, "node")  ? 40
                                                                 : 50;
  return kSuccess;
}

int nvmlDeviceGetCpuAffinityWithinScope(void* device, unsigned size, unsigned long* set,
                                        unsigned scope) {
  const std::optional<Card> card = CardOf(device);
  const std::string cores = !card ? "" : fake::Of(*card, "cores");
  if (cores.empty() || scope != 0) return kNotSupported;
  std::memset(set, 0, size * sizeof *set);
  const size_t dash = cores.find('-');
  const int first = std::atoi(cores.c_str());
  const int last = dash == std::string::npos ? first : std::atoi(cores.c_str() + dash + 1);
  SetBits(set, size, first, last);
  return kSuccess;
}
int nvmlDeviceGetMemoryAffinity(void* device, unsigned size, unsigned long* set, unsigned scope) {
  const std::optional<Card> card = CardOf(device);
  if (!card || fake::Of(*card, "node").empty() || scope != 0) return kNotSupported;
  std::memset(set, 0, size * sizeof *set);
  const int node = std::atoi(fake::Of(*card, "node").c_str());
  SetBits(set, size, node, node);
  return kSuccess;
}

}  // extern "C"
