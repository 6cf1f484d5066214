/* no_abi.c: a shared object without tasks. */
int main_of_something(void);

__attribute__((visibility("default"))) int main_of_something(void)
{
    return 0;
}
