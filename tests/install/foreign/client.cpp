/* Use the public header and the library from C++. */
#include <gradpool/gradpool.h>
#include <iostream>

int main()
{
    gp_parfeval_request request = {};
    gp_pool_options options = {};
    gp_pool *pool = nullptr;
    gp_error err;

    request.environment = GP_ENVIRONMENT_CPU;
    options.attach_only = true;
    if (gp_pool_open(&pool, &options, &err) == GP_ENOPOOL)
        std::cout << gp_version() << ": " << err.message << std::endl;
    gp_pool_close(pool);
    return request.environment == GP_ENVIRONMENT_CPU ? 0 : 1;
}
