# tests/environment.sh - what every test runs under. Sourced.
# Root may run mpirun in a container or in CI, where nobody else is there to be harmed.
if [ "$(id -u)" -eq 0 ]; then
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
fi
# More ranks than cores: nothing is bound, a waiting rank yields, and only shared memory is used.
OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1
OMPI_MCA_btl=self,vader OMPI_MCA_btl_vader_single_copy_mechanism=none
export OMPI_MCA_rmaps_base_oversubscribe OMPI_MCA_hwloc_base_binding_policy OMPI_MCA_mpi_yield_when_idle
export OMPI_MCA_btl OMPI_MCA_btl_vader_single_copy_mechanism
: "${OMP_NUM_THREADS=1}" "${MPILM_TEST_TIMEOUT=120}"
export OMP_NUM_THREADS MPILM_TEST_TIMEOUT
# Sanitizer builds: a leak of ours is a failure, what the libraries below keep to the end is not.
LSAN_OPTIONS=suppressions=${abs_top_srcdir-$PWD}/tests/lsan.supp:print_suppressions=0
UBSAN_OPTIONS=print_stacktrace=1
export LSAN_OPTIONS UBSAN_OPTIONS
