/* openmp_in_turn.c - the part of GCC's OpenMP library that ncnn's wheel calls, with one thread that computes the parts of
 * all threads in turn.
 *
 * Preloaded into an emulated program, it marks each part for edgec's plugin (devices/edgec_devices/csrc/block_count.c), so
 * that the work of each of ncnn's threads is counted by itself, on a core of its own, and every run counts the same.  A
 * parallel region is an operation for the plugin.  ncnn's regions have neither barriers nor critical sections inside, so
 * that their parts may run in any order.  Names and arguments are those of libgomp's public interface. */
#include <stdbool.h>
#include <unistd.h>

enum { MARK_PART = -779000, MARK_OP = -780000, MAX_REGIONS = 200000 };

static int threads = 1, in_region = 1, number, region;

int omp_get_thread_num(void) { return number; }
int omp_get_num_threads(void) { return in_region; }
int omp_get_max_threads(void) { return threads; }
int omp_get_dynamic(void) { return 0; }
void omp_set_dynamic(int on) { (void)on; }
void omp_set_num_threads(int n) { threads = n > 0 ? n : 1; }

void GOMP_parallel(void (*work)(void *), void *data, unsigned wanted, unsigned flags)
{
    (void)flags;
    const int n = wanted ? (int)wanted : threads;
    if (n == 1 || in_region > 1) { /* a region inside another one has one thread, as libgomp has it by default */
        const int outer = in_region, outer_number = number;
        in_region = 1, number = 0;
        work(data);
        in_region = outer, number = outer_number;
        return;
    }
    close(MARK_OP - region++ % MAX_REGIONS);
    in_region = n;
    for (number = 0; number < n; number++) {
        close(MARK_PART - 1 - number);
        work(data);
    }
    close(MARK_PART);
    number = 0, in_region = 1;
}
