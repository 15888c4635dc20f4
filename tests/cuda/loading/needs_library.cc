// A plugin that needs a library, as the real one needs cuBLAS.
extern "C" int muster_stand_in_create();
extern "C" int muster_stand_in_matmul();
extern "C" const char* muster_cuda_plugin_build() {
  return muster_stand_in_create() + muster_stand_in_matmul() == 0 ? "fedcba9876543210" : "";
}
