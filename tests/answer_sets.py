"""Sets of answers that say one thing in many ways, or many things."""

import textwrap

SETS = {
    "one word in eight formats": [
        *("Paris", "paris", "PARIS", "**Paris**", '"Paris"', "Paris.", "# Paris", "`Paris`")
    ],
    "one value in six notations": [
        *("42", "42.0", r"\boxed{42}", "$42$", "The answer is 42.", "**42**")
    ],
    "numbers from 41 to 48": [str(number) for number in range(41, 49)],
    "one refusal in eight wordings": [
        "I'm sorry, but I can't help with that.",
        "I cannot assist with this request.",
        "Sorry, I am unable to answer that question.",
        "As an AI language model, I can't provide that information.",
        "I must decline to respond to this.",
        "That is not something I can do.",
        "I won't be able to help you here.",
        "Unfortunately, this request goes against my guidelines.",
    ],
    "one idea in eight wordings": [
        "You should take a walk in the park.",
        "I would suggest a stroll through the park.",
        "How about going for a walk in a park?",
        "Walking in the park would be a good idea.",
        "Why not go to the park and walk a little?",
        "My advice: walk around in the park.",
        "Try a walk through the nearby park.",
        "A walk in the park might do you good.",
    ],
    "one function with eight choices of names": [
        f"def {f}({xs}):\n    {s} = 0{note}\n    for {x} in {xs}:\n"
        f"        {s} += {x}\n    return {s}"
        for f, xs, s, x, note in [
            ("add_all", "numbers", "total", "number", ""),
            ("sum_list", "xs", "s", "x", "\n"),
            ("total", "values", "result", "value", ""),
            ("f", "a", "r", "i", "  # Adds all."),
            ("compute", "items", "acc", "item", "\n    # One more."),
            ("solve", "lst", "out", "el", "\n\n"),
            ("sum_of", "data", "res", "d", ""),
            ("g", "seq", "t", "e", ""),
        ]
    ],
    "eight sorting algorithms": [
        "def sort(a):\n" + textwrap.indent(textwrap.dedent(body).strip(), "    ")
        for body in (
            """
            for i in range(len(a)):
                for j in range(len(a) - 1 - i):
                    if a[j] > a[j + 1]:
                        a[j], a[j + 1] = a[j + 1], a[j]
            return a
            """,
            """
            for i in range(1, len(a)):
                key, j = a[i], i - 1
                while j >= 0 and a[j] > key:
                    a[j + 1] = a[j]
                    j -= 1
                a[j + 1] = key
            return a
            """,
            """
            for i in range(len(a)):
                m = min(range(i, len(a)), key=a.__getitem__)
                a[i], a[m] = a[m], a[i]
            return a
            """,
            """
            if len(a) < 2:
                return a
            p = a[0]
            return sort([x for x in a[1:] if x < p]) + [p] + sort([x for x in a[1:] if x >= p])
            """,
            """
            if len(a) < 2:
                return a
            left, right = sort(a[: len(a) // 2]), sort(a[len(a) // 2 :])
            out = []
            while left and right:
                out.append(left.pop(0) if left[0] <= right[0] else right.pop(0))
            return out + left + right
            """,
            """
            import heapq
            heapq.heapify(a)
            return [heapq.heappop(a) for _ in range(len(a))]
            """,
            """
            counts = [0] * (max(a) + 1)
            for x in a:
                counts[x] += 1
            return [v for v, c in enumerate(counts) for _ in range(c)]
            """,
            """
            gap = len(a) // 2
            while gap:
                for i in range(gap, len(a)):
                    x, j = a[i], i
                    while j >= gap and a[j - gap] > x:
                        a[j] = a[j - gap]
                        j -= gap
                    a[j] = x
                gap //= 2
            return a
            """,
        )
    ],
    "`x + 1` and `x - 1`": [f"def f(x):\n    return x {sign} 1" for sign in "+-"],
    "eight reasonings with one boxed answer": [
        r"There are 6 rows of 7 chairs, so we multiply: $6 \times 7 = 42$. Therefore, \boxed{42}.",
        r"Let $n$ be the number of chairs. Each row adds 7, so $n = 7+7+7+7+7+7 = 42$. \boxed{42}",
        r"Half of the rows hold $3 \cdot 7 = 21$ chairs. Doubling gives \boxed{42}.",
        r"Of 10 rows with 70 chairs, remove 4 rows: $70 - 28 = 42$. The answer is \boxed{42}.",
        r"Using $7 \cdot 5 = 35$ and adding one more row of 7, we find \boxed{42} chairs.",
        r"The area of a rectangle with sides $6$ and $7$ is 42, hence \boxed{42}.",
        r"By the distributive law, $6 \cdot 7 = 6(5 + 2) = 30 + 12 = \boxed{42}$.",
        r"We solve $x / 6 = 7$ and obtain $x = 42$. So the result is \boxed{42}.",
    ],
    "one sentence in eight languages": [
        "The cat sleeps on the sofa.",
        "Die Katze schläft auf dem Sofa.",
        "Le chat dort sur le canapé.",
        "El gato duerme en el sofá.",
        "Il gatto dorme sul divano.",
        "Кошка спит на диване.",
        "القطة تنام على الأريكة.",
        "猫がソファで寝ています。",
    ],
    "eight unlike sentences in English": [
        "The cat sleeps on the sofa.",
        "The economy of the country grows fast.",
        "My brother plays the guitar.",
        "There will be heavy rain tomorrow.",
        "Scientists discovered a new planet.",
        "The soup must cook for two hours.",
        "The train arrived late.",
        "The children built a snow fortress.",
    ],
    "in French": [
        "Le chat dort sur le canapé.",
        "L'économie du pays croît rapidement.",
        "Mon frère joue de la guitare.",
        "Il y aura de fortes pluies demain.",
        "Des scientifiques ont découvert une nouvelle planète.",
        "La soupe doit cuire deux heures.",
        "Le train est arrivé en retard.",
        "Les enfants ont construit un château de neige.",
    ],
    "in Chinese": [
        *("猫在沙发上睡觉。", "这个国家的经济增长很快。", "我哥哥弹吉他。", "明天会下大雨。"),
        *("科学家发现了一颗新行星。", "汤必须煮两个小时。", "火车晚点了。", "孩子们堆了一座雪堡。"),
    ],
    "in Russian": [
        "Кошка спит на диване.",
        "Экономика страны растёт быстро.",
        "Мой брат играет на гитаре.",
        "Завтра будет сильный дождь.",
        "Учёные открыли новую планету.",
        "Суп нужно варить два часа.",
        "Поезд прибыл с опозданием.",
        "Дети построили снежную крепость.",
    ],
    "in Arabic": [
        "القطة تنام على الأريكة.",
        "اقتصاد البلاد ينمو بسرعة.",
        "أخي يعزف على الجيتار.",
        "ستهطل أمطار غزيرة غدا.",
        "اكتشف العلماء كوكبا جديدا.",
        "يجب طهي الحساء لمدة ساعتين.",
        "وصل القطار متأخرا.",
        "بنى الأطفال قلعة من الثلج.",
    ],
}
