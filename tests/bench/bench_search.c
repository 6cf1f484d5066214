/* bench_search: measure gradpool/search.h on functions with known minima.
 *
 *   bench_search FUNCTION METHOD PENDING SEED TRIALS...
 *                           print the regret after each number of trials, with PENDING trials at
 *                           a time, and the processor time of an ask in ms
 *   bench_search FUNCTION --value JSON
 *                           print a value
 *   bench_search --table FILE METHOD SEED TRIALS...
 *                           print the regret in accuracy after each number of trials, replayed on
 *                           a table of trainings (search_table.h)
 *   bench_search --asks COUNT DIMENSIONS
 *                           print the times of ten asks with COUNT finished trials, in ms */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <gradpool/search.h>

#include "common/base/memory/alloc.h"
#include "common/base/rng.h"
#include "tests/bench/search_functions.h"
#include "tests/bench/search_table.h"

enum { PENDING_MAX = 64 };

static void check(gp_status status, const gp_error *err)
{
    if (status == GP_OK)
        return;
    fprintf(stderr, "bench_search: %s\n", err->message);
    exit(1);
}

static double processor_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * 1e3 + now.tv_nsec * 1e-6;
}

/* Run one search, with `pending` trials at the same time. */
static void run(const search_function *function, gp_search_method method, uint32_t pending, uint64_t seed,
                char **budgets, int budget_count)
{
    const gp_search_options options = { .method = method, .seed = seed, .minimize = true };
    double waiting[PENDING_MAX], best = INFINITY, ask_ms = 0.0;
    const uint32_t trials = (uint32_t)atoi(budgets[budget_count - 1]);
    gp_search *search;
    gp_error err;
    int next = 0;

    check(gp_search_new(&search, function->space, &options, &err), &err);
    for (uint32_t done = 0, asked = 0; done < trials; done++) {
        for (; asked < trials && asked - done < pending; asked++) {
            const double begin = processor_ms();
            uint32_t trial;
            char *values;

            check(gp_search_ask(search, &trial, &values, &err), &err);
            ask_ms += processor_ms() - begin;
            waiting[asked % pending] = function->value(values);
            gp_free(values);
        }
        const double value = waiting[done % pending];

        check(gp_search_tell(search, done + 1, GP_SEARCH_DONE, value, &err), &err);
        best = fmin(best, value);
        if (done + 1 == (uint32_t)atoi(budgets[next]))
            printf("%.6g ", best - function->minimum), next++;
    }
    printf("%.3f\n", ask_ms / trials);
    gp_search_free(search);
}

/* Replay a search on a table; the seed of the search also selects the seed of the trainings. */
static void replay(const char *path, gp_search_method method, uint64_t seed, char **budgets, int budget_count)
{
    const gp_search_options options = { .method = method, .seed = seed };
    const int column = (int)(seed % TABLE_SEEDS);
    const uint32_t trials = (uint32_t)atoi(budgets[budget_count - 1]);
    search_table *table = search_table_read(path);
    double best = -INFINITY;
    gp_search *search;
    gp_error err;
    int next = 0;

    check(gp_search_new(&search, search_table_space(table), &options, &err), &err);
    for (uint32_t done = 1; done <= trials; done++) {
        uint32_t trial;
        char *values;

        check(gp_search_ask(search, &trial, &values, &err), &err);
        const double value = search_table_value(table, values, column);

        gp_free(values);
        check(gp_search_tell(search, trial, isnan(value) ? GP_SEARCH_FAILED : GP_SEARCH_DONE, value, &err),
              &err);
        best = fmax(best, value);
        if (done == (uint32_t)atoi(budgets[next]))
            printf("%.6g ", search_table_best(table, column) - best), next++;
    }
    printf("\n");
    gp_search_free(search);
    search_table_free(table);
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void measure_asks(uint32_t count, uint32_t dimensions)
{
    enum { ASKS = 10 };
    const gp_search_options options = { .minimize = true, .seed = 1 };
    char space[64 * 16] = "", *values;
    double ms[ASKS];
    gp_search *search;
    gp_error err;
    uint32_t trial;

    for (uint32_t i = 0; i < dimensions; i++)
        snprintf(space + strlen(space), sizeof(space) - strlen(space), "p%" PRIu32 "=0.0:1.0 ", i);
    check(gp_search_new(&search, space, &options, &err), &err);
    for (uint32_t i = 0; i < count + ASKS; i++) {
        const double begin = processor_ms();

        if (i >= count) {
            check(gp_search_ask(search, &trial, &values, &err), &err);
            ms[i - count] = processor_ms() - begin;
        } else {
            char *at = values = gp_malloc(dimensions * 32);

            for (uint32_t k = 0; k < dimensions; k++) {
                uint32_t word[4];

                gp_rng_draw(word, 1, 0, 0, i, k);
                at += sprintf(at, "p%" PRIu32 "=%.6f ", k, gp_rng_uniform(word[0]));
            }
            check(gp_search_add(search, values, &trial, &err), &err);
        }
        double value = 0.0;
        uint32_t k = 0;

        for (const char *at = values; *at != '\0'; at++)
            if (*at == '=' || *at == ':')
                value += (k + 1) * cos(5 * (strtod(at + 1, NULL) - 0.1 * k)), k++;
        check(gp_search_tell(search, trial, GP_SEARCH_DONE, value, &err), &err);
        gp_free(values);
    }
    printf("first %.1f ms (with the fits of all %" PRIu32 " trials), then ", ms[0], count);
    qsort(ms + 1, ASKS - 1, sizeof(*ms), compare);
    printf("median %.1f ms, highest %.1f ms\n", ms[1 + (ASKS - 1) / 2], ms[ASKS - 1]);
    gp_search_free(search);
}

int main(int count, char **arguments)
{
    static const char *const methods[] = { "bayes", "random", "sobol" };
    const search_function *function = count > 1 ? search_function_find(arguments[1]) : NULL;

    if (count == 4 && strcmp(arguments[1], "--asks") == 0) {
        measure_asks((uint32_t)atoi(arguments[2]), (uint32_t)atoi(arguments[3]));
        return 0;
    }
    if (count == 4 && function != NULL && strcmp(arguments[2], "--value") == 0) {
        printf("%.12g\n", function->value(arguments[3]));
        return 0;
    }
    for (int i = 0; count > 5 && strcmp(arguments[1], "--table") == 0 && i < 3; i++)
        if (strcmp(arguments[3], methods[i]) == 0) {
            replay(arguments[2], (gp_search_method)i, strtoull(arguments[4], NULL, 10), arguments + 5,
                   count - 5);
            return 0;
        }
    for (int i = 0; count > 5 && function != NULL && i < 3; i++)
        if (strcmp(arguments[2], methods[i]) == 0 && atoi(arguments[3]) > 0 &&
            atoi(arguments[3]) <= PENDING_MAX) {
            run(function, (gp_search_method)i, (uint32_t)atoi(arguments[3]), strtoull(arguments[4], NULL, 10),
                arguments + 5, count - 5);
            return 0;
        }
    fprintf(stderr, "usage: bench_search FUNCTION METHOD PENDING SEED TRIALS...\n");
    return 1;
}
