/* Search for the cheapest can of one liter: its radius, its metal, and for steel the thickness of
 * the coating. No pool is needed.
 *
 *   cmake -B build && cmake --build build && build/search */
#include <gradpool/gradpool.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Spaces with conditions are JSON. */
static const char space[] = "{\"radius\": \"log:2.0:20.0\", \"metal\": [\"steel\", \"aluminium\"],"
                            " \"coating\": {\"values\": \"1.0:9.0\", \"when\": {\"metal\": [\"steel\"]}}}";

/* Return the price of a can in cents; coating in micrometers. */
static double price(double radius, const char *metal, double coating)
{
    const double pi = acos(-1.0), height = 1000.0 / (pi * radius * radius);
    const double area = 2.0 * pi * radius * (radius + height), seams = 4.0 * pi * radius + height;

    if (strcmp(metal, "aluminium") == 0)
        return 0.011 * area + 0.03 * seams;
    return (0.008 + 0.0002 * coating) * area + 0.02 * seams + 3.0 / coating; /* rust costs, too */
}

int main(void)
{
    const gp_search_options options = { .minimize = true, .trials_max = 25 };
    gp_search *search = NULL;
    char *values = NULL, metal[16];
    uint32_t trial;
    double radius, coating, value;
    gp_error err;
    gp_status status = gp_search_new(&search, space, &options, &err);

    while (status == GP_OK && (status = gp_search_ask(search, &trial, &values, &err)) == GP_OK) {
        coating = 0.0;
        sscanf(values, "{\"radius\": %lf, \"metal\": \"%15[a-z]\", \"coating\": %lf", &radius, metal,
               &coating);
        value = price(radius, metal, coating);
        printf("trial %2u: %-65s %6.2f\n", (unsigned)trial, values, value);
        gp_buffer_free(values);
        status = gp_search_tell(search, trial, GP_SEARCH_DONE, value, &err);
    }
    if (status == GP_ENOENT) /* no trial is left */
        status = gp_search_best(search, NULL, &value, &values, &err);
    if (status == GP_OK) {
        printf("best: %s for %.2f cents\n", values, value);
        gp_buffer_free(values);
    } else {
        fprintf(stderr, "%s\n", err.message);
    }
    gp_search_free(search);
    return status == GP_OK ? 0 : 1;
}
