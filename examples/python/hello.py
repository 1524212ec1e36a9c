"""Remote functions, objects and an actor, in one page."""
import manta


@manta.remote
def square(x: int) -> int:
    return x * x


@manta.remote
def add(*numbers: int) -> int:
    return sum(numbers)


class Counter:
    def __init__(self, start: int) -> None:
        self.n = start

    def add(self, k: int) -> int:
        self.n += k
        return self.n


def main() -> None:
    squares = [square.remote(i) for i in range(4)]
    print("squares:", manta.get(squares))
    print("their sum:", manta.get(add.remote(*squares)))        # references become values on the way
    counter = manta.remote(Counter).remote(10)      # or @manta.remote above the class; type checkers see this better
    for k in range(3):
        counter.add.remote(k)
    print("counter:", manta.get(counter.add.remote(0)))         # after the others: one caller's calls keep their order


if __name__ == "__main__":
    main()
