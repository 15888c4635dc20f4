#include "worker/backend/cuda/cuda_backend.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <sys/prctl.h>

#include <type_traits>
#include <utility>

#include "common/base/error.h"
#include "worker/backend/cuda/card.h"
#include "worker/backend/cuda/events.h"
#include "worker/backend/cuda/graph.h"
#include "worker/backend/cuda/host_copies.h"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/ops.h"
#include "worker/backend/cuda/watchdog.h"
#include "worker/backend/cuda/weight_copies.h"

namespace muster::cuda {
namespace {

// The queues, and what the GPU must do before a wait for each one returns.
constexpr std::pair<Queue, const char*> kQueues[] = {
    {Queue::kCompute, "finish its computations"},
    {Queue::kCopyIn, "finish the copies from the host"},
    {Queue::kCopyOut, "finish the copies to the host"},
    {Queue::kInput, "finish making batches"}};

class CudaBuffer : public DeviceBuffer {
 public:
  CudaBuffer(Card& card, size_t bytes)
      : card_(card), bytes_(bytes), memory_(bytes == 0 ? DeviceMemory() : card.Allocate(bytes)) {}
  ~CudaBuffer() override { card_.Freed(bytes_); }
  CudaBuffer(const CudaBuffer&) = delete;
  void* data() override { return memory_.get(); }

 private:
  Card& card_;
  const size_t bytes_;
  const DeviceMemory memory_;
};

std::string Named(const Layer& layer, const OpOptions& options, const Error& error) {
  return fmt::format("layer {} ({} {} -> {}, batch {}): {}", layer.name, layer.kind,
                     layer.input_shape.ToString(), layer.output_shape.ToString(), options.batch,
                     error.what());
}

class CudaBackend : public Backend {
 public:
  explicit CudaBackend(const CudaOptions& options) : card_(options), copies_(card_) {}
  ~CudaBackend() override {
    Drain();
    card_.watchdog().Expect("release this process's resources");
  }

  std::string Arithmetic() const { return card_.Arithmetic(); }

  // Reduces the timer slack, which would add 50 µs to each short sleep of the polling thread.
  void Enter() override {
    (void)::prctl(PR_SET_TIMERSLACK, 1);
    card_.Enter();
  }
  ElementType activation_type() const override { return card_.activation_type(); }

  bool shares_host_memory() const override { return false; }
  std::unique_ptr<DeviceBuffer> Allocate(size_t bytes) override {
    return std::make_unique<CudaBuffer>(card_, bytes);
  }
  DeviceMemoryUse memory_use() const override { return card_.memory_use(); }
  std::string pci_bus_id() const override { return card_.PciBusId(); }
  std::string Export(DeviceBuffer& buffer) override {
    cudaIpcMemHandle_t handle{};
    Check(cudaIpcGetMemHandle(&handle, buffer.data()), "share its memory with a relay");
    return {handle.reserved, sizeof handle.reserved};
  }
  std::unique_ptr<HostRegistration> Register(const HostMemory& memory) override {
    return copies_.Register(memory);
  }
  void CopyIn(void* device, const void* host, size_t bytes) override {
    copies_.In(device, host, bytes);
  }
  void CopyOut(void* host, const void* device, size_t bytes) override {
    copies_.Out(host, device, bytes);
  }

  std::unique_ptr<Event> MakeEvent() override { return std::make_unique<CudaEvent>(copies_); }
  void Record(Queue queue, Event& event) override {
    static_cast<CudaEvent&>(event).Record(card_.stream(queue), queue == Queue::kCopyOut);
  }
  void Await(Queue queue, Event& event) override {
    const auto& recorded = static_cast<CudaEvent&>(event);
    if (!recorded.recorded()) return;
    Check(cudaStreamWaitEvent(card_.stream(queue), recorded.get(), 0), "wait for an event");
  }
  // Ignores errors: on a lost GPU there is nothing to wait for.
  void Drain() override {
    for (const auto& [queue, work] : kQueues) {
      card_.watchdog().Expect(work);
      (void)cudaStreamSynchronize(card_.stream(queue));
    }
    card_.watchdog().Expect(nullptr);
    (void)cudaGetLastError();
    copies_.Land(copies_.copies_out());
  }

  std::unique_ptr<RepeatedWork> MakeRepeatedWork() override {
    return std::make_unique<GraphedWork>(card_);
  }
  std::unique_ptr<WeightLayouts> MakeWeightLayouts() override {
    return std::make_unique<WeightCopies>(card_);
  }
  std::unique_ptr<Op> MakeOp(const Layer& layer, const OpOptions& options) override {
    return MakeAny<Op>(layer, options);
  }
  std::string Convolutions() const override { return card_.convolutions().Line(); }
  std::unique_ptr<LossOp> MakeLoss(const Layer& layer, const OpOptions& options) override {
    return MakeAny<LossOp>(layer, options);
  }
  std::unique_ptr<ImageOp> MakeImageOp(const ImageRecipe& recipe) override {
    return cuda::MakeImageOp(recipe, card_);
  }

  void Zero(void* to, size_t bytes) override {
    if (bytes == 0) return;
    Check(cudaMemsetAsync(to, 0, bytes, card_.stream(Queue::kCompute)), "clear memory");
  }
  void ToActivations(void* to, const float* from, int64_t count) override {
    MUSTER_CHECK(card_.activation_type() != ElementType::kFloat32);
    ForActivations([&]<typename T>(std::type_identity<T>) {
      Convert(card_.target(), static_cast<T*>(to), from, count);
    });
  }
  void ScalePixels(void* to, const uint8_t* from, int64_t count, const PixelScale& scale) override {
    ForActivations([&]<typename T>(std::type_identity<T>) {
      cuda::ScalePixels(card_.target(), static_cast<T*>(to), from, count, scale);
    });
  }
  void MirrorImages(void* to, const void* from, int64_t count, const Shape& shape) override {
    ForActivations([&]<typename T>(std::type_identity<T>) {
      cuda::MirrorImages(card_.target(), static_cast<T*>(to), static_cast<const T*>(from),
                         count * shape.elements(), static_cast<int>(shape.width),
                         static_cast<int>(shape.channels));
    });
  }
  void AverageLogits(ElementType type, void* logits, const void* others, int64_t count) override {
    WithElement(type, [&]<typename T>(std::type_identity<T>) {
      Average(card_.target(), static_cast<T*>(logits), static_cast<const T*>(others), count);
    });
  }
  void AddGradients(void* to, const void* a, const void* b, const void* relu_output,
                    int64_t count) override {
    ForActivations([&]<typename T>(std::type_identity<T>) {
      cuda::AddGradients(card_.target(), static_cast<T*>(to), static_cast<const T*>(a),
                         static_cast<const T*>(b), static_cast<const T*>(relu_output), count);
    });
  }
  void RoundSlice(ElementType wire, float* values, size_t count) override {
    cuda::RoundSlice(card_.target(), wire, values, static_cast<int64_t>(count));
  }
  void AddSlices(ElementType wire, const float* a, const float* b, float* to,
                 size_t count) override {
    cuda::AddSlices(card_.target(), wire, to, a, b, static_cast<int64_t>(count));
  }

 private:
  template <typename Body>
  void ForActivations(const Body& body) {
    WithElement(card_.activation_type(), body);
  }
  // Calls the layer's Make (ops.h). Its result must be of type Wanted.
  template <typename Wanted>
  std::unique_ptr<Wanted> MakeAny(const Layer& layer, const OpOptions& options) {
    const OpRequest request{layer, options, card_};
    const auto make = [&](const auto& spec) -> std::unique_ptr<Wanted> {
      if constexpr (std::is_same_v<decltype(cuda::Make(spec, request)), std::unique_ptr<Wanted>>) {
        return cuda::Make(spec, request);
      }
      MUSTER_CHECK(!"MakeOp is not for losses, MakeLoss only for losses, neither for flatten");
    };
    try {
      return std::visit(make, layer.spec);
    } catch (const OutOfDeviceMemory& error) {
      throw OutOfDeviceMemory(error.code(), Named(layer, options, error));
    } catch (const Error& error) {
      throw Error(error.code(), Named(layer, options, error));
    }
  }

  Card card_;
  HostCopies copies_;
};

}  // namespace

int RequireCount(const OpRequest& request, int64_t elements) {
  const int64_t count = request.options.batch * elements;
  if (count < int64_t{1} << 31) return static_cast<int>(count);
  throw Error(ExitCode::kFailure,
              "a batch of {} has {} values here, expected fewer than 2^31: use more slices",
              request.options.batch, count);
}

int InputCount(const OpRequest& request) {
  return RequireCount(request, request.layer.input_shape.elements());
}
int OutputCount(const OpRequest& request) {
  return RequireCount(request, request.layer.output_shape.elements());
}

CudaWorker MakeCudaWorker(const CudaOptions& options) {
  auto backend = std::make_unique<CudaBackend>(options);
  std::string arithmetic = backend->Arithmetic();
  return {std::move(backend), std::move(arithmetic)};
}

}  // namespace muster::cuda
